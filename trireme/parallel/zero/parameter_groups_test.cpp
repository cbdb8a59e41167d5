// Parameters with learning rates and optimizers of their own, and frozen ones.
#include <set>

#include <gmock/gmock.h>

#include "trireme/parallel/zero/collective_state_dict.hpp"
#include "trireme/parallel/zero/saved_state.hpp"
#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/zero_helpers.hpp"

namespace trireme {
namespace {

using test::kRows;
using test::rows;
using test::UnitNet;

constexpr int kGroupSteps = 3;
constexpr double kGroupLr = 0.02, kGroupFactor = 0.25, kGroupMomentum = 0.8;

bool is_frozen(const std::string& name) { return name == "layer1.weight" || name == "norm0" || name == "layer0.bias"; }
bool is_by_sgd(const std::string& name) { return name.starts_with("layer2"); }

void freeze(UnitNet& net) {
  for (auto& item : net.named_parameters())
    if (is_frozen(item.key())) item.value().set_requires_grad(false);
}

using Weights = std::map<std::string, at::Tensor>;

/// One rank, plain autograd, the formulas written out: SGD with a quarter of the rate for layer2, Adam for the others.
Weights trained_by_hand() {
  UnitNet net;
  freeze(net);
  Weights m, v, out;
  for (int step = 1; step <= kGroupSteps; ++step) {
    net.zero_grad();
    net.loss(rows(step)).backward();
    const at::NoGradGuard no_grad;
    for (auto& item : net.named_parameters()) {
      at::Tensor w = item.value();
      if (!w.requires_grad()) continue;
      const at::Tensor g = w.grad().defined() ? w.grad() : at::zeros_like(w);
      const auto first = [&](const at::Tensor& x) { return step == 1 ? at::zeros_like(g) : x; };
      if (is_by_sgd(item.key())) {
        m[item.key()] = kGroupMomentum * first(m[item.key()]) + g;
        w.sub_(kGroupLr * kGroupFactor * m[item.key()]);
        continue;
      }
      m[item.key()] = 0.9 * first(m[item.key()]) + 0.1 * g;
      v[item.key()] = 0.95 * first(v[item.key()]) + 0.05 * g * g;
      w.sub_(kGroupLr * (m[item.key()] / (1 - std::pow(0.9, step))) /
             ((v[item.key()] / (1 - std::pow(0.95, step))).sqrt() + 1e-8));
    }
  }
  for (const auto& item : net.named_parameters()) out[item.key()] = item.value().detach().clone();
  return out;
}

UpdateOptions grouped_update() {
  const OptimizerOptions adam{.kind = OptimizerKind::adamw, .weight_decay = 0};
  OptimizerOptions sgd = adam;
  sgd.kind = OptimizerKind::sgd;
  sgd.momentum = kGroupMomentum;
  return {.optimizer = adam,
          .groups = {{.names = {"layer2"}, .lr_factor = kGroupFactor, .optimizer = sgd},
                     {.names = {"*"}, .lr_factor = 1}},  // of all that the first does not name
          .master = at::kDouble,
          .states = at::kDouble};
}

void with_trained(int dp, int stage, int replicate, int microbatches, const std::function<void(Mesh&, Zero&)>& f) {
  run_ranks(dp, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = dp}), world);
    UnitNet net;
    freeze(net);
    Zero zero(params_of(net), net.units(), mesh,
              {.stage = stage,
               .replicate = replicate,
               .bucket_mb = 0.012,
               .max_reuse_distance = 0,
               .persistence_threshold = 40,
               .accumulate = at::kDouble,
               .reduce = at::kDouble},
              grouped_update());
    net.units(&zero.chunk());
    const std::int64_t each = kRows / dp / microbatches;
    for (int step = 1; step <= kGroupSteps; ++step) {
      for (int m = 0; m < microbatches; ++m) {
        zero.chunk().begin_microbatch(m + 1 == microbatches);
        net.loss(rows(step).narrow(0, (m * dp + mesh.rank()) * each, each)).backward();
        zero.chunk().end_microbatch();
      }
      zero.finish_gradients();
      zero.update({.lr = kGroupLr}).settle();
    }
    zero.finish_gathers();
    f(mesh, zero);
  });
}

TEST(ParameterGroups, TrainAsOneRankDoes) {
  const Weights wanted = trained_by_hand();
  for (const int dp : {1, 2, 4})
    for (const int stage : {0, 1, 2, 3})
      for (const int microbatches : {1, 3})
        for (const int replicate : {1, 2}) {
          if (replicate > dp) continue;
          SCOPED_TRACE(text("dp ", dp, " stage ", stage, " accumulation ", microbatches, " replicate ", replicate));
          with_trained(dp, stage, replicate, microbatches, [&](Mesh&, Zero& zero) {
            const Weights found = collective_state_dict(zero, StateOn::all_ranks);
            ASSERT_EQ(found.size(), wanted.size());
            for (const auto& [name, value] : wanted)
              EXPECT_LE((found.at(name) - value).norm().item<double>(), 1e-10 * (value.norm().item<double>() + 1e-3))
                  << name;
          });
        }
}

/// In stage 3 a frozen weight is sharded and gathered like others; what is small is whole.
TEST(ParameterGroups, FrozenParametersAreSharded) {
  for (const int stage : {0, 2, 3})
    with_trained(4, stage, 1, 1, [&](Mesh&, Zero& zero) {
      std::set<std::string> names;
      EXPECT_TRUE(zero.frozen().empty());
      for (const ZeroPart* part : zero.parts()) {
        if (part->is_trained) continue;
        EXPECT_EQ(part->gradients.numel(), 0);
        EXPECT_EQ(part->params.live(), 0);
        EXPECT_EQ(part->params.most_live() > 0, stage == 3);
        for (const Param& param : part->partition.params()) {
          names.insert(param.name);
          EXPECT_EQ(param.value.storage().nbytes() == 0, stage == 3 && param.name == "layer1.weight") << param.name;
        }
      }
      EXPECT_EQ(names, (std::set<std::string>{"layer0.bias", "layer1.weight", "norm0"}));
    });
}

/// Each once, with the states of its own optimizer, frozen ones without any; and all of it is loaded again.
TEST(ParameterGroups, AreSavedOnce) {
  for (const int stage : {0, 1, 3})
    for (const int dp : {1, 4}) {
      std::map<std::pair<std::string, std::string>, std::int64_t> saved;
      std::mutex mutex;
      with_trained(dp, stage, 1, 1, [&](Mesh&, Zero& zero) {
        const std::lock_guard lock(mutex);
        for (const StateSlice& slice : slices_to_save(zero)) saved[{slice.name, slice.kind}] += slice.values.numel();
        EXPECT_EQ(zero.state_names("layer2.weight"), std::vector<std::string>{"momentum_buffer"});
        EXPECT_EQ(zero.state_names("norm1"), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
      });
      for (const auto& item : UnitNet().named_parameters()) {
        const std::int64_t elements = item.value().numel();
        const bool frozen = is_frozen(item.key()), sgd = is_by_sgd(item.key());
        const auto count = [&](const char* kind) { return saved[{item.key(), kind}]; };
        EXPECT_EQ(count("weight"), elements) << item.key();
        EXPECT_EQ(count("exp_avg"), frozen || sgd ? 0 : elements) << item.key();
        EXPECT_EQ(count("momentum_buffer"), !frozen && sgd ? elements : 0) << item.key();
      }
    }
}

TEST(ParameterGroups, SomethingMustBeTrained) {
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({}), world);
    UnitNet net(3, at::kFloat);
    for (auto& item : net.named_parameters()) item.value().set_requires_grad(false);
    EXPECT_EQ(message_of<ConfigError>([&] { Zero(params_of(net), net.units(), mesh, {.stage = 3}, {}); }),
              "the model has no parameter to train");
  });
}

}  // namespace
}  // namespace trireme
