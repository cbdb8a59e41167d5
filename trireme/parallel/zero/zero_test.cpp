#include "trireme/parallel/zero/zero.hpp"

#include <gmock/gmock.h>

#include "trireme/nn/init_scope.hpp"
#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/zero_helpers.hpp"

namespace trireme {
namespace {

using test::kRows;
using test::rows;
using test::UnitNet;

constexpr int kZeroSteps = 4;
constexpr double kLr = 0.05;
double lr_of(const std::string& optimizer) { return optimizer == "sgd" ? 1e-4 : kLr; }

/// The results of a run.
struct Outcome {
  std::map<std::string, at::Tensor> params;
  std::vector<double> norms;
};

OptimizerOptions optimizer_options(const std::string& name) {
  return {
      .kind = parse_optimizer(name), .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1, .momentum = 0.8};
}

/// One rank, plain autograd and the optimizer formulas written out: independent of the library except for the model.
Outcome reference(const std::string& optimizer, double max_norm) {
  UnitNet net;
  Outcome out;
  std::map<std::string, at::Tensor> m, v;
  for (int step = 1; step <= kZeroSteps; ++step) {
    net.zero_grad();
    net.loss(rows(step)).backward();
    const at::NoGradGuard no_grad;
    double squares = 0;
    for (const auto& p : net.named_parameters())
      if (p.value().grad().defined()) squares += p.value().grad().square().sum().item<double>();
    out.norms.push_back(std::sqrt(squares));
    const double clip = max_norm > 0 ? std::min(1.0, max_norm / (out.norms.back() + 1e-6)) : 1.0;
    for (auto& p : net.named_parameters()) {
      at::Tensor w = p.value();
      at::Tensor g = w.grad().defined() ? w.grad() * clip : at::zeros_like(w);
      const double decay =
          p.key().find("norm") == std::string::npos && p.key().find("bias") == std::string::npos ? 0.1 : 0;
      if (optimizer == "sgd") {
        g = g + decay * w;
        m[p.key()] = step == 1 ? g : 0.8 * m[p.key()] + g;
        w.sub_(lr_of(optimizer) * m[p.key()]);
        continue;
      }
      if (optimizer == "adam") g = g + decay * w;
      m[p.key()] = 0.1 * g + (step == 1 ? at::zeros_like(g) : 0.9 * m[p.key()]);
      v[p.key()] = 0.05 * g * g + (step == 1 ? at::zeros_like(g) : 0.95 * v[p.key()]);
      if (optimizer == "adamw") w.mul_(1 - kLr * decay);
      w.sub_(kLr * (m[p.key()] / (1 - std::pow(0.9, step))) /
             ((v[p.key()] / (1 - std::pow(0.95, step))).sqrt() + 1e-6));
    }
  }
  for (const auto& p : net.named_parameters()) out.params[p.key()] = p.value().detach().clone();
  return out;
}

struct Case {
  int dp = 1;
  ZeroOptions zero{};
  std::string optimizer = "adamw";
  double max_norm = 0;
  int microbatches = 1;
  at::ScalarType dtype = at::kDouble;
  bool deterministic = false;
};

std::map<std::string, at::Tensor> whole_params(Zero& zero) {
  std::map<std::string, at::Tensor> out;
  const Partition& partition = zero.partition();
  for (std::size_t b = 0; b < partition.num_buckets(); ++b)
    zero.params().with_whole(b, [&] {
      for (const FlatSlot& slot : partition.bucket(b).slots)
        out[partition.params()[slot.item].name] = partition.params()[slot.item].value.detach().clone();
    });
  return out;
}

/// The results on rank 0; all ranks must end with the same parameters.
Outcome train(const Case& run) {
  Outcome out;
  std::vector<std::map<std::string, at::Tensor>> all(static_cast<std::size_t>(run.dp));
  run_ranks(run.dp,
            [&](World& world) {
              Mesh mesh(Grid::dense({.dp = run.dp}), world);
              UnitNet net(3, run.dtype);
              ZeroOptions options = run.zero;
              const bool f64 = run.dtype == at::kDouble;
              if (f64) options.accumulate = options.reduce = at::kDouble;
              const at::ScalarType kept = f64 ? at::kDouble : at::kFloat;
              Zero zero(params_of(net), net.units(), mesh, options,
                        {.optimizer = optimizer_options(run.optimizer), .master = kept, .states = kept});
              net.units(&zero.chunk());
              std::vector<double> norms;
              const std::int64_t each = kRows / run.dp / run.microbatches;
              for (int step = 1; step <= kZeroSteps; ++step) {
                for (int m = 0; m < run.microbatches; ++m) {
                  zero.chunk().begin_microbatch(m + 1 == run.microbatches);
                  net.loss(rows(step).narrow(0, (m * run.dp + mesh.rank()) * each, each)).backward();
                  zero.chunk().end_microbatch();
                }
                zero.finish_gradients();
                norms.push_back(zero.update({.lr = lr_of(run.optimizer), .max_norm = run.max_norm}).settle());
              }
              EXPECT_EQ(zero.params().live(), 0);
              all[static_cast<std::size_t>(mesh.rank())] = whole_params(zero);
              if (mesh.rank() == 0) out.norms = norms;
            },
            {.deterministic = run.deterministic});
  for (const auto& [name, value] : all[0])
    for (const auto& other : all) EXPECT_TRUE(value.equal(other.at(name))) << name;
  out.params = all[0];
  return out;
}

void expect_close(const Outcome& found, const Outcome& wanted, double bound, const std::string& what) {
  ASSERT_EQ(found.params.size(), wanted.params.size());
  for (const auto& [name, value] : wanted.params)
    EXPECT_LE((found.params.at(name) - value).norm().item<double>(), bound * (value.norm().item<double>() + 1e-3))
        << name << " " << what;
  for (std::size_t i = 0; i < wanted.norms.size(); ++i)
    EXPECT_NEAR(found.norms[i] / wanted.norms[i], 1, bound) << what << " step " << i + 1;
}

bool same_bits(const Outcome& a, const Outcome& b) {
  for (const auto& [name, value] : a.params)
    if (!value.equal(b.params.at(name))) return false;
  return a.norms == b.norms;
}

TEST(Zero, EveryStageTrainsAsOneRankDoes) {
  for (const std::string optimizer : {"adamw", "adam", "sgd"})
    for (const double max_norm : {0.0, 0.7}) {
      const Outcome wanted = reference(optimizer, max_norm);
      for (const int dp : {1, 2, 4})
        for (const int stage : {0, 1, 2, 3})
          for (const int microbatches : {1, 3})
            for (const int replicate : {1, 2}) {
              if (replicate > dp) continue;
              const Case run{.dp = dp,
                             .zero = {.stage = stage,
                                      .replicate = replicate,
                                      .bucket_mb = 0.012,
                                      .max_reuse_distance = microbatches == 1 ? 0 : 1'000'000,
                                      .persistence_threshold = optimizer == "adam" ? 0 : 50},
                             .optimizer = optimizer,
                             .max_norm = max_norm,
                             .microbatches = microbatches};
              expect_close(train(run), wanted, optimizer == "sgd" ? 1e-12 : 1e-9,
                           text(optimizer, " dp ", dp, " stage ", stage, " accumulation ", microbatches, " replicate ",
                                replicate));
            }
    }
}

/// For evaluations: the weights, and nothing beside them.
TEST(Zero, ForwardsAloneNeedNoGradientsMastersAndStates) {
  for (const int stage : {0, 1, 3})
    run_ranks(2, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2}), world);
      UnitNet net(3, at::kBFloat16), alone(3, at::kBFloat16);
      Zero zero(params_of(net), net.units(), mesh, {.forward_only = true, .stage = stage, .persistence_threshold = 0},
                {.optimizer = optimizer_options("adamw")});
      net.units(&zero.chunk());
      const at::NoGradGuard no_grad;
      zero.finish_gathers();
      EXPECT_TRUE(net.loss(rows(1)).equal(alone.loss(rows(1)))) << stage;
      for (std::size_t b = 0; b < zero.partition().num_buckets(); ++b)
        EXPECT_EQ(zero.optimizer().master(b).data_ptr(), zero.params().shard(b).data_ptr()) << "a copy of the weights";
      EXPECT_EQ(zero.gradients().numel(), 0);
      EXPECT_THROW(zero.update({.lr = 1}), InternalError);
    });
}

TEST(Zero, StagesAndAccumulationAreTheSameBits) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const int dp : {2, 4}) {
      const auto run = [&](int ranks, int stage, int microbatches, double bucket_mb, bool overlap = true) {
        return train({.dp = ranks,
                      .zero = {.stage = stage,
                               .bucket_mb = bucket_mb,
                               .overlap = overlap,
                               .max_reuse_distance = 0,
                               .persistence_threshold = stage * 20},
                      .max_norm = 0.7,
                      .microbatches = microbatches,
                      .dtype = dtype,
                      .deterministic = true});
      };
      const Outcome accumulated = run(1, 0, dp, 25);
      for (const int stage : {0, 1, 2, 3})
        for (const double bucket_mb : {0.0001, 0.012, 25.0})
          for (const bool overlap : {false, true})
            EXPECT_TRUE(same_bits(run(dp, stage, 1, bucket_mb, overlap), accumulated))
                << dtype << " dp " << dp << " stage " << stage << " bucket " << bucket_mb;
      EXPECT_FALSE(same_bits(run(dp, 1, 3, 25), accumulated)) << "the comparison sees nothing";
    }
}

/// Elements sent per rank in a step of m microbatches, with N parameter elements: 2N, 2N, (m + 1) N, 3 m N for stages 0
/// to 3, times (n - 1) / n for a ring.
TEST(Zero, TrafficIsWhatItMustBe) {
  constexpr int kDp = 4, kMicrobatches = 2;
  for (const int stage : {0, 1, 2, 3})
    run_ranks(kDp, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = kDp}), world);
      UnitNet net;
      Zero zero(params_of(net), net.units(), mesh,
                {.stage = stage,
                 .max_reuse_distance = 0,
                 .persistence_threshold = 0,
                 .accumulate = at::kDouble,
                 .reduce = at::kDouble},
                {.optimizer = {}, .master = at::kDouble, .states = at::kDouble});
      net.units(&zero.chunk());
      Group& dp = mesh.group(Axis::dp);
      const auto sent = [&](Op op) { return dp.traffic(op).bytes; };
      std::int64_t before[3] = {};
      const auto step = [&] {
        before[0] = sent(Op::all_reduce), before[1] = sent(Op::reduce_scatter), before[2] = sent(Op::all_gather);
        for (int m = 0; m < kMicrobatches; ++m) {
          zero.chunk().begin_microbatch(m + 1 == kMicrobatches);
          net.loss(rows().narrow(0, 6 * mesh.rank(), 6)).backward();
          zero.chunk().end_microbatch();
        }
        zero.finish_gradients();
        zero.update({.lr = kLr}).settle();
        zero.finish_gathers();
      };
      step();
      step();
      const std::int64_t n = zero.partition().layout().numel * 8 * (kDp - 1) / kDp;
      // The unit of the first layer is visited twice, like a tied head: freed and gathered once more in each direction.
      std::int64_t again = 0;
      if (stage == 3)
        for (const std::size_t b : zero.partition().buckets_of_unit(0))
          again += zero.partition().bucket(b).numel * 8 * (kDp - 1) / kDp;
      const std::int64_t norm = 8;  // bytes: the sum of squares
      EXPECT_EQ(sent(Op::all_reduce) - before[0], stage == 0 ? 2 * n : 2 * norm * (kDp - 1) / kDp) << stage;
      EXPECT_EQ(sent(Op::reduce_scatter) - before[1], stage == 0 ? 0 : stage == 1 ? n : kMicrobatches * n) << stage;
      const std::int64_t gathered = sent(Op::all_gather) - before[2];
      if (stage == 3)
        EXPECT_EQ(gathered, kMicrobatches * (2 * n + again)) << "backward frees the tied unit only at its end";
      else
        EXPECT_EQ(gathered, stage == 0 ? 0 : n) << stage;
    });
}

/// `body` with a net whose parameters, gradients and states are sharded as the stage says, in fp64.
void on_two_ranks_of_every_stage(const std::function<void(UnitNet&, Zero&, const Mesh&)>& body) {
  for (const int stage : {0, 1, 2, 3})
    run_ranks(2, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2}), world);
      UnitNet net;
      Zero zero(params_of(net), net.units(), mesh,
                {.stage = stage, .persistence_threshold = 0, .accumulate = at::kDouble, .reduce = at::kDouble},
                {.optimizer = {}, .master = at::kDouble, .states = at::kDouble});
      net.units(&zero.chunk());
      body(net, zero, mesh);
    });
}

TEST(Zero, ANormThatIsNotFiniteChangesNothing) {
  on_two_ranks_of_every_stage([](UnitNet& net, Zero& zero, const Mesh& mesh) {
    const auto step = [&](double factor) {
      zero.chunk().begin_microbatch(true);
      (net.loss(rows()) * (mesh.rank() == 1 ? factor : 1.0)).backward();
      zero.chunk().end_microbatch();
      zero.finish_gradients();
      const double norm = zero.update({.lr = kLr, .max_norm = 1}).settle();
      return norm;
    };
    EXPECT_TRUE(std::isfinite(step(1)));
    const auto before = whole_params(zero);
    const at::Tensor state = zero.optimizer().state(0, 0).clone();
    EXPECT_FALSE(std::isfinite(step(std::nan(""))));
    EXPECT_THAT(zero.not_finite(), testing::Contains("layer1.weight"));
    for (const auto& [name, value] : whole_params(zero)) EXPECT_TRUE(value.equal(before.at(name))) << name;
    EXPECT_TRUE(zero.optimizer().state(0, 0).equal(state));
    EXPECT_EQ(zero.optimizer().steps(), 1);
    EXPECT_TRUE(std::isfinite(step(1)));
    EXPECT_TRUE(zero.not_finite().empty());
    zero.finish_gathers();
  });
}

TEST(Zero, ANormAboveTheLimitChangesNothing) {
  on_two_ranks_of_every_stage([](UnitNet& net, Zero& zero, const Mesh& /*mesh*/) {
    constexpr double kScale = 64;
    const auto step = [&](double skip_above) {
      zero.chunk().begin_microbatch(true);
      (kScale * net.loss(rows())).backward();
      zero.chunk().end_microbatch();
      zero.finish_gradients();
      return zero.update({.lr = kLr, .max_norm = 1, .loss_scale = kScale, .skip_above = skip_above}).settle();
    };
    const auto first = whole_params(zero);
    const double norm = step(0);
    EXPECT_GT(norm, 0);
    for (const auto& [name, value] : whole_params(zero)) EXPECT_TRUE(value.equal(first.at(name))) << name;
    EXPECT_EQ(zero.optimizer().steps(), 0);
    EXPECT_EQ(step(norm * (1 - 1e-12)), norm) << "of the same weights";
    EXPECT_EQ(zero.optimizer().steps(), 0);
    EXPECT_EQ(step(norm), norm);
    EXPECT_EQ(zero.optimizer().steps(), 1);
    zero.finish_gathers();
    for (const auto& [name, value] : whole_params(zero)) EXPECT_FALSE(value.equal(first.at(name))) << name;
  });
}

TEST(Zero, TheLossScaleGoesBeforeTheClipping) {
  run_ranks(1, [](World& world) {
    Mesh mesh(Grid::dense({}), world);
    std::vector<Outcome> outcomes;
    for (const double scale : {1.0, 1024.0}) {
      UnitNet net;
      Zero zero(params_of(net), net.units(), mesh, {.accumulate = at::kDouble, .reduce = at::kDouble},
                {.optimizer = {.kind = OptimizerKind::sgd}, .master = at::kDouble, .states = at::kDouble});
      Outcome outcome;
      zero.chunk().begin_microbatch(true);
      (net.loss(rows()) * scale).backward();
      zero.chunk().end_microbatch();
      zero.finish_gradients();
      outcome.norms.push_back(zero.update({.lr = kLr, .max_norm = 0.7, .loss_scale = scale}).settle());
      outcome.params = whole_params(zero);
      outcomes.push_back(outcome);
    }
    expect_close(outcomes[1], outcomes[0], 1e-14, "scale");
  });
}

TEST(Zero, Bf16KeepsAMasterThatSmallUpdatesReach) {
  for (const int stage : {0, 1, 2, 3})
    run_ranks(2, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2}), world);
      UnitNet net(3, at::kBFloat16);
      Zero zero(params_of(net), net.units(), mesh, {.stage = stage, .persistence_threshold = 0}, {});
      net.units(&zero.chunk());
      const at::Tensor before = zero.optimizer().master(0).clone();
      for (int step = 0; step < 3; ++step) {
        zero.chunk().begin_microbatch(true);
        net.loss(rows()).backward();
        zero.chunk().end_microbatch();
        zero.finish_gradients();
        zero.update({.lr = 1e-5}).settle();
      }
      zero.finish_gathers();
      const at::Tensor moved = (zero.optimizer().master(0) - before).abs();
      EXPECT_NEAR(moved.max().item<double>(), 3e-5, 1e-5);
      EXPECT_TRUE(zero.params().shard(0).equal(zero.optimizer().master(0).to(at::kBFloat16)));
    });
}

/// Gathered units stay within the limits, and are freed.
TEST(Zero, UnitsComeAndGo) {
  run_ranks(2, [](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    const auto most_live = [&](const ZeroOptions& change) {
      ZeroOptions options = change;
      options.stage = 3;
      options.accumulate = options.reduce = at::kDouble;
      UnitNet net(6);
      Zero zero(params_of(net), net.units(), mesh, options,
                {.optimizer = {}, .master = at::kDouble, .states = at::kDouble});
      net.units(&zero.chunk());
      EXPECT_EQ(zero.params().live(), 0);
      zero.chunk().begin_microbatch(true);
      const at::Tensor loss = net.loss(rows());
      const std::int64_t after_forward = zero.params().live();
      loss.backward();
      EXPECT_EQ(after_forward > 0, (!options.reshard_after_forward || options.max_reuse_distance > 0) &&
                                       options.persistence_threshold == 0);
      zero.chunk().end_microbatch();
      zero.finish_gradients();
      zero.update({.lr = kLr}).settle();
      zero.finish_gathers();
      EXPECT_EQ(zero.params().live(), 0);
      {
        const at::NoGradGuard no_grad;
        net.loss(rows());
        EXPECT_EQ(zero.params().live(), 0);  // no later visit needs them
      }
      return zero.params().most_live() / zero.partition().bucket(0).numel;
    };
    EXPECT_EQ(most_live({.max_reuse_distance = 0, .persistence_threshold = 0}), 3);  // one is the tied unit
    EXPECT_EQ(most_live({.max_live_parameters = 0, .max_reuse_distance = 0, .persistence_threshold = 0}), 2);
    EXPECT_EQ(most_live({.overlap = false, .max_reuse_distance = 0, .persistence_threshold = 0}), 2);
    EXPECT_EQ(most_live({.reshard_after_forward = false, .max_reuse_distance = 0, .persistence_threshold = 0}), 6);
    EXPECT_EQ(most_live({.persistence_threshold = 0}), 6);
    EXPECT_EQ(most_live({.persistence_threshold = 10'000}), 0);
  });
}

/// An update that needs full matrices: the gradient divided by its norm.
class NormalisedSgd final : public Optimizer {
 public:
  const std::vector<std::string>& state_names() const override { return names_; }
  bool needs_whole(const std::string& /*name*/, const Shape& shape) const override { return shape.size() == 2; }
  void step(std::span<const UpdateSlice> slices, double lr, std::int64_t /*step*/,
            const kernels::GradientFactor& /*factor*/) const override {
    for (const UpdateSlice& slice : slices)
      for (const ParamSlice& param : slice.params) {
        if (param.shape.size() == 2) {
          EXPECT_EQ(param.range.size(), numel(param.shape)) << param.name;
        }
        const at::Tensor gradient = slice.values.gradient.narrow(0, param.offset, param.range.size());
        at::Tensor weight = slice.values.weight.narrow(0, param.offset, param.range.size());
        weight.sub_(lr * (param.shape.size() == 2 ? gradient / (gradient.norm() + 1e-6) : gradient));
      }
  }

 private:
  const std::vector<std::string> names_{};
};

TEST(Zero, AnOptimizerMaySeeWholeMatrices) {
  std::map<std::string, at::Tensor> wanted;
  for (const int dp : {1, 2, 4})
    for (const int stage : {0, 1, 2, 3})
      run_ranks(dp, [&](World& world) {
        Mesh mesh(Grid::dense({.dp = dp}), world);
        UnitNet net;
        Zero zero(params_of(net), net.units(), mesh,
                  {.stage = stage,
                   .bucket_mb = 0.05,
                   .persistence_threshold = 50,
                   .accumulate = at::kDouble,
                   .reduce = at::kDouble},
                  {.make = [](const OptimizerOptions&) { return std::make_unique<NormalisedSgd>(); },
                   .master = at::kDouble,
                   .states = at::kDouble});
        net.units(&zero.chunk());
        const std::int64_t each = kRows / dp;
        for (int step = 0; step < 2; ++step) {
          zero.chunk().begin_microbatch(true);
          net.loss(rows(step).narrow(0, mesh.rank() * each, each)).backward();
          zero.chunk().end_microbatch();
          zero.finish_gradients();
          zero.update({.lr = 0.01}).settle();
        }
        zero.finish_gathers();
        const auto found = whole_params(zero);
        if (mesh.rank() != 0) return;
        if (wanted.empty()) wanted = found;
        for (const auto& [name, value] : wanted)
          EXPECT_LT((found.at(name) - value).norm().item<double>(), 1e-12 * (value.norm().item<double>() + 1e-3))
              << name << " dp " << dp << " stage " << stage;
      });
}

TEST(ZeroDeathTest, AnUpdateMustBeSettled) {
  EXPECT_DEATH(run_ranks(1,
                         [](World& world) {
                           Mesh mesh(Grid::dense({}), world);
                           UnitNet net;
                           Zero zero(params_of(net), net.units(), mesh,
                                     {.accumulate = at::kDouble, .reduce = at::kDouble},
                                     {.optimizer = {}, .master = at::kDouble, .states = at::kDouble});
                           zero.chunk().begin_microbatch(true);
                           net.loss(rows()).backward();
                           zero.chunk().end_microbatch();
                           EXPECT_THROW(zero.update({.lr = kLr}).settle(), InternalError) << "before the sums";
                           zero.finish_gradients();
                           static_cast<void>(zero.update({.lr = kLr}));
                         }),
               "never settled");
}

/// A Layer, for values that are given by range.
class Declared : public Layer {
 public:
  explicit Declared(const Parallel& parallel) {
    weight = declare("weight", {.shape = {50, 40}}, parallel);
    frozen = declare("frozen", {.shape = {6}}, parallel);
    frozen.set_requires_grad(false);
  }
  at::Tensor weight, frozen;
};

/// 1 + element / 4096: exact in f32, not in bf16.
void counted_values(const Param&, Range range, const at::Tensor& out) {
  for (std::int64_t i = range.begin; i < range.end; ++i) out[i - range.begin] = 1 + static_cast<double>(i) / 4096;
}

/// On `meta` until Zero gives memory; the master weights are those of the source, the model's are rounded from them,
/// and frozen parameters have their values on every rank.
TEST(Zero, FillsMastersAndFrozenParametersOfAModelOnMeta) {
  for (const int stage : {0, 1, 2, 3})
    for (const int dp : {1, 2, 4})
      run_ranks(dp, [&](World& world) {
        Mesh mesh(Grid::dense({.dp = dp}), world);
        const InitScope scope(at::kMeta, at::kBFloat16);
        Declared layer{Parallel(mesh, false)};
        const UnitPlan units{.units = {{"all", {"weight"}}}, .visits = {{0}}};
        Zero zero(params_of(layer), units, mesh,
                  {.device = at::Device(at::kCPU), .stage = stage, .persistence_threshold = 0}, {}, counted_values);
        const at::Tensor exact = 1 + at::arange(2000, at::kDouble) / 4096;
        ASSERT_EQ(zero.frozen().size(), 1u) << "it is in no unit";
        EXPECT_TRUE(layer.frozen.to(at::kDouble).allclose(exact.narrow(0, 0, 6), 0, 1.0 / 256));
        EXPECT_FALSE(layer.frozen.is_meta());
        for (const FlatPiece& piece : zero.partition().own_pieces(0)) {
          const at::Tensor wanted = exact.narrow(0, piece.of_item.begin, piece.of_item.size()).to(at::kFloat);
          EXPECT_TRUE(zero.optimizer().master(0).narrow(0, piece.offset, piece.of_item.size()).equal(wanted));
        }
        zero.params().with_whole(
            0, [&] { EXPECT_TRUE(layer.weight.detach().view(-1).equal(exact.to(at::kFloat).to(at::kBFloat16))); });
      });
}

/// Without values, and in a module whose parameters are not declared: an error, not memory that nobody wrote.
TEST(Zero, AParameterOnMetaNeedsValues) {
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({}), world);
    const InitScope scope(at::kMeta, at::kFloat);
    const auto message = [&](std::vector<Param> params, const ParamValues& values) {
      return message_of<ConfigError>(
          [&] { Zero(std::move(params), {}, mesh, {.device = at::Device(at::kCPU)}, {}, values); });
    };
    Declared layer{Parallel(mesh, false)};
    EXPECT_THAT(message(params_of(layer), {}),
                testing::StartsWith("weight is on the device meta and has no values\n  fix: give Zero"));
    torch::nn::Module other;
    other.register_parameter("weight", at::empty({2, 3}, at::kMeta));
    EXPECT_THAT(message(params_of(other), counted_values),
                testing::StartsWith("weight is on the device meta and has no values\n  fix: make the module"));
  });
}

/// Stage 1: at most two buckets that hold memory of their own are in flight.
TEST(Zero, BucketsInFlightAreBounded) {
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    UnitNet net(8);
    Zero zero(params_of(net), net.units(), mesh, {.stage = 1, .bucket_mb = 0.012, .accumulate = at::kDouble},
              {.optimizer = optimizer_options("adamw"), .master = at::kDouble, .states = at::kDouble});
    net.units(&zero.chunk());
    zero.chunk().begin_microbatch(true);
    net.loss(rows()).backward();
    int unfinished = 0, sums = 0;
    for (const CallRecord& call : world.recorder().step_calls())
      if (call.op == Op::reduce_scatter) ++sums, unfinished += call.finished_ns == 0;
    EXPECT_GT(sums, 4);
    EXPECT_LE(unfinished, 2);
    zero.chunk().end_microbatch();
    zero.finish_gradients();
    zero.update({.lr = kLr}).settle();
    zero.finish_gathers();
  });
}

/// HSDP: the sums over the replicas start during backward, not one after the other behind it.
TEST(Zero, SumsOverReplicasOverlapBackward) {
  run_ranks(4, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = 4}), world);
    UnitNet net(8);
    Zero zero(params_of(net), net.units(), mesh,
              {.stage = 2, .replicate = 2, .bucket_mb = 0.012, .accumulate = at::kDouble},
              {.optimizer = optimizer_options("adamw"), .master = at::kDouble, .states = at::kDouble});
    net.units(&zero.chunk());
    for (const bool last : {false, true}) {
      zero.chunk().begin_microbatch(last);
      net.loss(rows()).backward();
      int over_replicas = 0;
      for (const CallRecord& call : world.recorder().step_calls())
        over_replicas += call.op == Op::all_reduce && zero.partition().replicas().str() == call.group;
      EXPECT_EQ(over_replicas > 2, last) << "only the last microbatch, and before its end";
      zero.chunk().end_microbatch();
    }
    zero.finish_gradients();
    zero.update({.lr = kLr}).settle();
    zero.finish_gathers();
  });
}

}  // namespace
}  // namespace trireme
