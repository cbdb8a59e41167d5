// Examples from the documentation of other projects, run on the layers of this library.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "trireme/comm/differentiable.hpp"
#include "trireme/parallel/tensor/linear.hpp"
#include "trireme/testing/nn_helpers.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kWide = 8, kBatch = 4;

/// One full Linear of [8, 8] without bias: the reference for each version.
struct OneLinear {
  at::Tensor weight = normal_tensor({kWide, kWide}, 1, "weight").set_requires_grad(true);
  at::Tensor x = normal_tensor({kBatch, kWide}, 2, "x").set_requires_grad(true);
  at::Tensor y = at::mm(x, weight.t());
  OneLinear() { y.square().sum().backward(); }
};

void set_whole(Layer& layer, const at::Tensor& whole, Mesh& mesh) {
  const at::NoGradGuard off;
  for (const Param& p : params_of(layer))
    for (const Piece& piece : ParamMesh(mesh).pieces(p.spec))
      box_view(p.value, box_of(piece.slices.local_slices)).copy_(box_view(whole, box_of(piece.slices.global_slices)));
}

TEST(NanotronDocumentation, ThreeVersionsOfOneLinear) {
  for (const int ranks : {1, 2, 4})
    on_tp(ranks, [&](Mesh& mesh) {
      const OneLinear one;
      Group& tp = mesh.group(Axis::tp);
      const auto near = [](const at::Tensor& a, const at::Tensor& b) { return relative(a, b) < 1e-13; };
      {  // V1: outputs sharded, then an all-gather of outputs
        ColumnLinear layer(kWide, kWide, mesh, {.gather_output = true});
        set_whole(layer, one.weight, mesh);
        EXPECT_EQ(layer.weight_fD.sizes(), (at::IntArrayRef{kWide / ranks, kWide}));
        const at::Tensor x = one.x.detach().clone().set_requires_grad(true), y = layer.forward(x);
        y.square().sum().backward();
        EXPECT_TRUE(near(y, one.y) && near(x.grad(), one.x.grad()));
        EXPECT_TRUE(near(whole_gradients(layer, mesh).at("weight"), one.weight.grad()));
      }
      {  // V2: inputs sharded, then an all-reduce of outputs
        RowLinear layer(kWide, kWide, mesh);
        set_whole(layer, one.weight, mesh);
        EXPECT_EQ(layer.weight_Df.sizes(), (at::IntArrayRef{kWide, kWide / ranks}));
        const std::int64_t part = kWide / ranks;
        const at::Tensor x = one.x.detach().narrow(1, tp.rank() * part, part).clone().set_requires_grad(true);
        const at::Tensor y = layer.forward(x);
        y.square().sum().backward();
        EXPECT_TRUE(near(y, one.y) && near(x.grad(), one.x.grad().narrow(1, tp.rank() * part, part)));
        EXPECT_TRUE(near(whole_gradients(layer, mesh).at("weight"), one.weight.grad()));
      }
      {  // V3: the weight replicated, the batch sharded, an all-gather of inputs, every rank computes everything
        const std::int64_t part = kBatch / ranks;
        const at::Tensor w = one.weight.detach().clone().set_requires_grad(true);
        const at::Tensor x = one.x.detach().narrow(0, tp.rank() * part, part).clone().set_requires_grad(true);
        const at::Tensor y = at::mm(differentiable::gather_replicated(x, 0, tp), w.t());
        y.square().sum().backward();
        EXPECT_TRUE(near(y, one.y) && near(w.grad(), one.weight.grad()));
        EXPECT_TRUE(near(x.grad(), one.x.grad().narrow(0, tp.rank() * part, part)));
      }
    });
}

TEST(NanotronDocumentation, ShardedInfoOfATensorOnRanks0And3) {
  // tp groups {0, 3} and {1, 2}.
  const Grid grid({{Axis::dp, 2}, {Axis::tp, 2}}, {0, 3, 1, 2});
  on_tp(2, [&](Mesh& mesh) {
    const RowLinear layer(64, 8, {mesh});
    const ParamSpec& spec = *layer.spec("weight");
    for (const auto& [rank, first] : std::vector<std::pair<int, std::int64_t>>{{0, 0}, {3, 32}})
      EXPECT_EQ(sharded_info(spec.placement, spec.shape, grid, rank),
                (ShardedInfo{{0, 3},
                             {{.local_slices = slices_of({{0, 8}, {0, 32}}),
                               .global_slices = slices_of({{0, 8}, {first, first + 32}})}},
                             {8, 64}}));
  });
}

TEST(MegatronWalkthrough, TheNumbersOfColumnParallelLinear) {
  for (const int ranks : {1, 2})
    run_ranks(ranks, [&](World& world) {
      Mesh mesh(Grid::dense({.tp = ranks}), world);
      at::Generator generator = at::detail::createCPUGenerator(0);  // as torch.manual_seed(0)
      const at::Tensor inputs = at::randn({2, 4}, generator), weights = at::randn({4, 2}, generator);
      ColumnLinear layer(4, 2, mesh, {.gather_output = true});
      set_whole(layer, weights.t(), mesh);
      const at::Tensor wanted = at::tensor({0.3243, -3.0032, 0.3713, 0.7296}, at::kFloat).view({2, 2});
      EXPECT_LT((layer.forward(inputs) - wanted).abs().max().item<double>(), 5e-5);
    });
}

}  // namespace
}  // namespace trireme
