#include "trireme/kernels/norm/unit_rms_norm.hpp"

#include "trireme/testing/kernels_helpers.hpp"

namespace trireme::kernels {
namespace {

TEST(UnitRmsNorm, AddsTheWeightToOneBeforeItRounds) {
  constexpr double kEps = 1e-6;
  const auto plain = [&](const test::Tensors& in) {
    return in[0] * (in[0].square().mean(-1, true) + kEps).rsqrt() * (1 + in[1]);
  };
  const auto ours_of = [&](const test::Tensors& in) { return unit_rms_norm(in[0], in[1], kEps); };
  for (const at::Device device : test::devices())
    for (const auto& [dtype, bound] : std::vector<std::pair<at::ScalarType, double>>{
             {at::kDouble, 1e-14}, {at::kFloat, 1e-6}, {at::kBFloat16, 6e-3}}) {
      const at::Tensor x = test::normal({6, 64}, 1).to(dtype).to(device);
      // So small that 1 + w is 1 in bfloat16.
      const at::Tensor w = (1e-3 * test::normal({64}, 3)).to(dtype).to(device);
      const auto dy = [](const at::Tensor& y) { return test::normal(y.sizes(), 2).to(y.options()); };
      const auto ours = test::run(ours_of, {x, w}, dy);
      const auto truth = test::run(plain, {x.to(at::kDouble), w.to(at::kDouble)}, dy);
      const auto close = [&](const at::Tensor& a, const at::Tensor& b) {
        EXPECT_LT(test::difference(a.to(at::kDouble).cpu(), b.cpu()), bound) << dtype << " " << device;
      };
      close(ours.y, truth.y);
      close(ours.grads[0], truth.grads[0]);
      close(ours.grads[1], truth.grads[1]);
      EXPECT_EQ(ours.y.scalar_type(), dtype);
    }
  // The mean over many rows with the same weight tells 1 + w from 1, whatever each row is rounded to.
  const at::Tensor x = test::normal({4096, 8}, 1).to(at::kBFloat16), w = at::full({8}, 1.0 / 1024, at::kBFloat16);
  const double ratio = unit_rms_norm(x, w, kEps).to(at::kDouble).abs().sum().item<double>() /
                       unit_rms_norm(x, at::zeros_like(w), kEps).to(at::kDouble).abs().sum().item<double>();
  EXPECT_NEAR(ratio, 1 + 1.0 / 1024, 2e-4);
}

}  // namespace
}  // namespace trireme::kernels
