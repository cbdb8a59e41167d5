// A new parallelism axis takes only one layer: this one is sharded over ep, its gradient is summed over edp, and no
// code outside this file knows about it.
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/differentiable.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/tensor/full_tensor.hpp"
#include "trireme/parallel/zero/zero.hpp"
#include "trireme/testing/zero_helpers.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kLayerWidth = 6, kExperts = 4, kBatchRows = 24;
constexpr int kAxisSteps = 3;
constexpr double kAxisLr = 0.01, kMaxNorm = 0.5;

/// A dense layer, then experts: row i of the batch goes to expert i % kExperts. The ranks of ep gather their rows, each
/// applies its local experts, and the results are scattered back.
class RoutedNet final : public Layer {
 public:
  explicit RoutedNet(const Parallel& parallel) : parallel_(parallel) {
    dense_ = declare("dense", {.shape = {kLayerWidth, kLayerWidth}}, parallel);
    const Placement by_expert{.cuts = {{Axis::ep, 0}}, .view = View::expert};
    experts_ = declare("experts", {.shape = {kExperts, kLayerWidth, kLayerWidth}, .placement = by_expert}, parallel);
  }

  at::Tensor loss(const at::Tensor& rows_bD, const at::Tensor& numbers_b) {
    const at::Tensor h = in_unit(hooks_, {0}, [&] { return kernels::linear(rows_bD, dense_).tanh(); });
    const at::Tensor y = in_unit(hooks_, {1}, [&] {
      const at::Tensor all = differentiable::all_gather(h, 0, parallel_.ep);
      const at::Tensor numbers = parallel_.ep.all_gather(numbers_b.contiguous()).wait();
      const std::int64_t own = experts_.size(0), first = parallel_.ep.rank() * own;
      at::Tensor out = at::zeros_like(all);
      for (std::int64_t e = 0; e < own; ++e) {
        const at::Tensor mine = numbers.remainder(kExperts).eq(first + e).to(all.scalar_type()).unsqueeze(1);
        out = out + mine * all.matmul(experts_[e].t());
      }
      return differentiable::reduce_scatter(out, 0, parallel_.ep);
    });
    return y.square().sum() + 0.1 * h.sum();
  }

  UnitPlan units() const { return {.units = {{"dense", {"dense"}}, {"experts", {"experts"}}}, .visits = {{0}, {1}}}; }
  void use_units(UnitHooks* hooks) { hooks_ = hooks; }

 private:
  const Parallel parallel_;
  at::Tensor dense_, experts_;
  UnitHooks* hooks_ = nullptr;
};

at::Tensor batch(int step) {
  return test::normal_numbers({kBatchRows, kLayerWidth}, 50 + static_cast<std::uint64_t>(step));
}

struct AxisOutcome {
  std::vector<double> norms;
  std::map<std::string, at::Tensor> weights;
};

const InitOptions kInit{.seed = 9, .scheme = InitScheme::plain};

/// One rank, plain autograd, SGD written out by hand.
AxisOutcome plain_reference() {
  AxisOutcome out;
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({}), world, {}, expert_view(Grid::dense({}), 1));
    const InitScope f64(at::kCPU, at::kDouble);
    RoutedNet net(mesh);
    init_parameters(net, mesh, kInit);
    for (int step = 0; step < kAxisSteps; ++step) {
      net.zero_grad();
      net.loss(batch(step), at::arange(kBatchRows)).backward();
      const at::NoGradGuard no_grad;
      double squares = 0;
      for (const auto& p : net.named_parameters()) squares += p.value().grad().square().sum().item<double>();
      out.norms.push_back(std::sqrt(squares));
      const double clip = std::min(1.0, kMaxNorm / (out.norms.back() + 1e-6));
      for (auto& p : net.named_parameters()) p.value().sub_(kAxisLr * clip * p.value().grad());
    }
    for (const auto& p : net.named_parameters()) out.weights[p.key()] = p.value().detach().clone();
  });
  return out;
}

AxisOutcome train_routed(const Degrees& degrees, int ep, int stage, int microbatches) {
  AxisOutcome out;
  const Grid grid = Grid::dense(degrees);
  run_ranks(grid.size(), [&](World& world) {
    Mesh mesh(grid, world, {}, expert_view(grid, ep));
    const InitScope f64(at::kCPU, at::kDouble);
    RoutedNet net(mesh);
    EXPECT_EQ(params_of(net)[1].value.size(0), kExperts / ep);
    Zero zero(params_of(net), net.units(), mesh,
              {.stage = stage, .persistence_threshold = 0, .accumulate = at::kDouble, .reduce = at::kDouble},
              {.optimizer = {.kind = OptimizerKind::sgd, .weight_decay = 0, .momentum = 0},
               .master = at::kDouble,
               .states = at::kDouble},
              random_values(mesh, kInit));
    EXPECT_EQ(zero.parts().size(), ep > 1 ? 2u : 1u) << "one part for each group that sums gradients";
    net.use_units(&zero.chunk());
    Group& tokens = mesh.token_group();
    const std::int64_t each = kBatchRows / tokens.size() / microbatches;
    AxisOutcome own;
    for (int step = 0; step < kAxisSteps; ++step) {
      for (int m = 0; m < microbatches; ++m) {
        const std::int64_t first = (m * tokens.size() + tokens.rank()) * each;
        zero.chunk().begin_microbatch(m + 1 == microbatches);
        net.loss(batch(step).narrow(0, first, each), at::arange(first, first + each)).backward();
        zero.chunk().end_microbatch();
      }
      zero.finish_gradients();
      mesh.end_step();
      own.norms.push_back(zero.update({.lr = kAxisLr, .max_norm = kMaxNorm}).settle());
    }
    zero.finish_gathers();
    for (ZeroPart* part : zero.parts())
      for (std::size_t b = 0; b < part->partition.num_buckets(); ++b)
        part->params.with_whole(b, [&] {
          for (const FlatSlot& slot : part->partition.bucket(b).slots) {
            const Param& param = part->partition.params()[slot.item];
            const FullTensor full = gather_full_tensor(param.value.detach(), param.spec, mesh);
            EXPECT_EQ(full.disagreement, 0) << param.name;
            own.weights[param.name] = full.value;
          }
        });
    if (mesh.rank() == 0) out = own;
  });
  return out;
}

TEST(NewAxis, IsOneLayer) {
  const AxisOutcome wanted = plain_reference();
  struct AxisCase {
    Degrees degrees;
    int ep;
  };
  for (const AxisCase& c : {AxisCase{{.dp = 4}, 2}, AxisCase{{.dp = 4}, 4}, AxisCase{{.dp = 4}, 1},
                            AxisCase{{.dp = 2, .cp = 2}, 2}, AxisCase{{.dp = 2, .tp = 2}, 2}})
    for (const int stage : {0, 1, 2, 3})
      for (const int microbatches : {1, 3}) {
        const AxisOutcome found = train_routed(c.degrees, c.ep, stage, microbatches);
        const std::string what = text(Grid::dense(c.degrees).str(), " ep=", c.ep, " zero=", stage);
        ASSERT_EQ(found.norms.size(), wanted.norms.size());
        for (std::size_t i = 0; i < wanted.norms.size(); ++i)
          EXPECT_NEAR(found.norms[i] / wanted.norms[i], 1, 1e-12) << what;
        ASSERT_EQ(found.weights.size(), wanted.weights.size());
        for (const auto& [name, value] : wanted.weights)
          EXPECT_LT((found.weights.at(name) - value).norm().item<double>(), 1e-12 * value.norm().item<double>())
              << what << " " << name;
      }
}

}  // namespace
}  // namespace trireme
