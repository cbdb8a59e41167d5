#include "trireme/kernels/matmul/fused_matmul.hpp"

#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/testing/kernels_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::kernels {
namespace {

class FusedMatmul : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  }
  /// Of the dtype under test, but f64 on the CPU.
  at::Tensor random(at::IntArrayRef sizes, int seed) const {
    return test::normal(sizes, seed).to(GetParam()).to(at::kDouble);
  }
  at::Tensor on_gpu(const at::Tensor& x) const { return x.to(GetParam()).cuda(); }
  /// Relative to the largest element: the rounding of the result, and of what the epilogue computes.
  void expect_near(const at::Tensor& found, const at::Tensor& wanted, const std::string& what) const {
    const double rounding = GetParam() == at::kHalf ? 0x1p-11 : 0x1p-8;
    const double error = (found.to(at::kDouble).cpu() - wanted).abs().max().item<double>();
    EXPECT_LE(error, 1.5 * rounding * wanted.abs().max().item<double>()) << what;
    EXPECT_FALSE(found.isnan().any().item<bool>()) << what;
  }
};

at::Tensor gelu_slope(const at::Tensor& x) {
  const at::Tensor leaf = x.detach().requires_grad_();
  at::gelu(leaf, "tanh").sum().backward();
  return leaf.grad();
}

struct LayerSizes {
  std::int64_t T, K, N;
};
constexpr LayerSizes kLayerSizes[] = {{1, 8, 8}, {7, 64, 24}, {128, 768, 3072}, {130, 3072, 768}, {333, 1600, 4800}};

TEST_P(FusedMatmul, OfALinearLayer) {
  for (const auto [T, K, N] : kLayerSizes) {
    const at::Tensor x = random({T, K}, 1), w = random({N, K}, 2), b = random({N}, 3), r = random({T, N}, 4);
    const std::string what = text(T, " x ", K, " x ", N);
    ASSERT_TRUE(has_fused_matmul(on_gpu(x), on_gpu(w))) << what;
    const at::Tensor product = x.mm(w.t());
    expect_near(linear_with_residual(on_gpu(x), on_gpu(w), {}, {}), product, what);
    expect_near(linear_with_residual(on_gpu(x), on_gpu(w), on_gpu(b), {}), product + b, what + " bias");
    expect_near(linear_with_residual(on_gpu(x), on_gpu(w), on_gpu(b), on_gpu(r)), product + b + r, what + " residual");
    expect_near(linear_with_residual(on_gpu(x), on_gpu(w), {}, on_gpu(r)), product + r, what + " only residual");
  }
}

TEST_P(FusedMatmul, TunedAlgorithmsComputeTheSame) {
  tune_fused_matmul(at::kCUDA);  // what other tests have left
  for (const auto [T, K, N] : {LayerSizes{256, 512, 1024}, LayerSizes{264, 520, 1032}}) {
    const at::Tensor x = random({T, K}, 1), w = random({N, K}, 2), b = random({N}, 3), r = random({T, N}, 4);
    const at::Tensor back = random({K, N}, 5);
    const auto compare = [&](const std::string& when) {
      const std::string what = text(T, " x ", K, " x ", N, " ", when);
      const at::Tensor product = x.mm(w.t());
      expect_near(linear_with_residual(on_gpu(x), on_gpu(w), on_gpu(b), on_gpu(r)), product + b + r, what);
      const at::Tensor nn = at::empty({T, N}, on_gpu(x).options());
      product_nn_out(nn, on_gpu(x), on_gpu(back));
      expect_near(nn, x.mm(back), what + " nn");
      const at::Tensor dw = at::ones({N, K}, on_gpu(x).options().dtype(at::kFloat));
      weight_gradient_out(dw, on_gpu(r), on_gpu(x), /*add=*/true);
      expect_near(dw, r.t().mm(x) + 1, what + " dW");
      expect_near(linear_gelu(on_gpu(x), on_gpu(w) / 32, on_gpu(b)).before, product / 32 + b, what + " GELU");
    };
    compare("before");
    EXPECT_EQ(tune_fused_matmul(at::kCUDA), 4) << "those that have run";
    EXPECT_EQ(tune_fused_matmul(at::kCUDA), 0) << "each once";
    compare("after");
    EXPECT_EQ(tune_fused_matmul(at::kCUDA), 0) << "known shapes";
  }
}

TEST_P(FusedMatmul, WithGelu) {
  for (const auto [T, K, N] : kLayerSizes) {
    const at::Tensor x = random({T, K}, 1), w = random({N, K}, 2) / std::sqrt(static_cast<double>(K)),
                     b = random({N}, 3);
    const at::Tensor w16 = w.to(GetParam()).to(at::kDouble), before = x.mm(w16.t()) + b;
    const std::string what = text(T, " x ", K, " x ", N);
    const LinearGelu found = linear_gelu(on_gpu(x), on_gpu(w), on_gpu(b));
    expect_near(found.before, before, what + " before");
    expect_near(found.y, at::gelu(before, "tanh"), what + " y");

    // The layer after it has N inputs and K outputs.
    const at::Tensor dy = random({T, K}, 5), next = random({K, N}, 6), seen = found.before.to(at::kDouble).cpu();
    const at::Tensor dx = dy.mm(next) * gelu_slope(seen);
    expect_near(gelu_gradient(on_gpu(dy), on_gpu(next), found.before), dx, what + " dx");
  }
}

TEST_P(FusedMatmul, OfGradients) {
  for (const auto [T, K, N] : kLayerSizes)
    for (const at::ScalarType out_type : {at::kFloat, GetParam()})
      for (const bool add : {false, true}) {
        const at::Tensor x = random({T, K}, 1), dy = random({T, N}, 2), old = random({N, K}, 3);
        const at::Tensor wanted = add ? old + dy.t().mm(x) : dy.t().mm(x);
        const std::string what = text(T, " x ", K, " x ", N, " ", out_type, add ? " added" : "");
        const at::Tensor out = old.to(out_type).cuda();
        weight_gradient_out(out, on_gpu(dy), on_gpu(x), add);
        expect_near(out, wanted, what);
      }
}

TEST_P(FusedMatmul, IsNotForEveryOperand) {
  const auto bf16 = at::TensorOptions(GetParam()).device(at::kCUDA);
  EXPECT_FALSE(has_fused_matmul(at::zeros({4, 8}, bf16.dtype(at::kFloat)), at::zeros({4, 8}, bf16.dtype(at::kFloat))));
  EXPECT_FALSE(has_fused_matmul(at::zeros({4, 9}, bf16), at::zeros({4, 9}, bf16))) << "rows that are not aligned";
  EXPECT_FALSE(has_fused_matmul(at::zeros({0, 8}, bf16), at::zeros({4, 8}, bf16))) << "empty";
  allow_fused_matmul(false);
  EXPECT_FALSE(has_fused_matmul(at::zeros({4, 8}, bf16), at::zeros({4, 8}, bf16)));
  allow_fused_matmul(true);
  EXPECT_TRUE(has_fused_matmul(at::zeros({4, 8}, bf16), at::zeros({4, 8}, bf16)));
  EXPECT_THROW(linear_with_residual(at::zeros({4, 8}, bf16), at::zeros({4, 16}, bf16), {}, {}), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Cuda, FusedMatmul, testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& tested) { return std::string(c10::toString(tested.param)); });

}  // namespace
}  // namespace trireme::kernels
