#include "trireme/parallel/tensor/fused_gelu_mlp.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/kernels/matmul/fused_matmul.hpp"
#include "trireme/nn/step_keys.hpp"
#include "trireme/parallel/tensor/mlp.hpp"
#include "trireme/testing/nn_helpers.hpp"

namespace trireme {
namespace {

/// y, dx, the gradient of the residual, and those of the parameters.
std::vector<at::Tensor> run_gelu_mlp(GeluMlp& mlp, bool fused, bool rebuilds) {
  kernels::allow_fused_matmul(fused);
  mlp.zero_grad();
  const auto leaf = [](int seed) {
    return normal_tensor({64, 32}, seed, "x").to(at::kBFloat16).cuda().requires_grad_();
  };
  const at::Tensor x = leaf(1), residual = leaf(2);
  const auto same = [](const std::vector<at::Tensor>& from) { return from[0]; };
  const at::Tensor y =
      mlp.forward_onto(residual, x, {}, rebuilds ? MaybeRebuild{{{x.detach()}, same}} : std::nullopt, rebuilds);
  y.backward(normal_tensor({64, 32}, 3, "dy").to(at::kBFloat16).cuda());
  std::vector<at::Tensor> out{y.detach(), x.grad(), residual.grad()};
  for (const at::Tensor& parameter : mlp.parameters()) out.push_back(parameter.grad().clone());
  kernels::allow_fused_matmul(true);
  return out;
}

TEST(FusedGeluMlp, EqualsOneOperatorAfterTheOther) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({.tp = 1}), world);
    const InitScope bf16(at::Device(at::kCUDA, 0), at::kBFloat16);
    GeluMlp mlp(32, 128, /*bias=*/true, /*tanh_form=*/true, mesh);
    fill(mlp, mesh);
    const std::vector<at::Tensor> separate = run_gelu_mlp(mlp, false, false);
    for (const bool rebuilds : {false, true}) {
      const std::vector<at::Tensor> fused = run_gelu_mlp(mlp, true, rebuilds);
      ASSERT_EQ(fused.size(), separate.size());
      for (std::size_t i = 0; i < fused.size(); ++i)
        EXPECT_LT(relative(fused[i].to(at::kDouble), separate[i].to(at::kDouble)), 0.01) << i << rebuilds;
    }
  });
}

TEST(StepKeys, ArePurposesOfTheStep) {
  EXPECT_EQ(dropout_purpose("layers.0", 3), dropout_purpose("layers.0", 3));
  EXPECT_NE(dropout_purpose("layers.0", 3), dropout_purpose("layers.0", 4));
  EXPECT_NE(dropout_purpose("layers.0", 3), dropout_purpose("layers.1", 3));
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  StepKeys keys(at::Device(at::kCUDA, 0));
  const std::int64_t *const first = keys.slot("layers.0"), *const second = keys.slot("layers.1");
  EXPECT_EQ(keys.slot("layers.0"), first);
  EXPECT_EQ(second, first + 1);
  keys.set_step(7);
  const at::Tensor read =
      at::from_blob(const_cast<std::int64_t*>(first), {2}, at::TensorOptions(at::kLong).device(at::kCUDA)).cpu();
  EXPECT_EQ(static_cast<std::uint64_t>(read[0].item<std::int64_t>()), dropout_purpose("layers.0", 7));
  EXPECT_EQ(static_cast<std::uint64_t>(read[1].item<std::int64_t>()), dropout_purpose("layers.1", 7));
}

}  // namespace
}  // namespace trireme
