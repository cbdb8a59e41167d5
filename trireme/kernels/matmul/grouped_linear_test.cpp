#include "trireme/kernels/matmul/grouped_linear.hpp"

#include <ATen/ops/tensor.h>
#include <torch/cuda.h>

#include "trireme/testing/kernels_helpers.hpp"

namespace trireme::kernels {
namespace {

TEST(GroupedLinear, EqualsAMatmulPerExpert) {
  for (const at::Device device : test::devices())
    for (const std::vector<std::int64_t>& rows :
         std::vector<std::vector<std::int64_t>>{{3, 0, 5}, {0, 0, 0}, {1, 1, 1}}) {
      const std::int64_t total = rows[0] + rows[1] + rows[2];
      const at::Tensor x = test::normal({total, 4}, 1).to(device), weight = test::normal({3, 6, 4}, 2).to(device);
      const auto plain = [&](const test::Tensors& in) {
        std::vector<at::Tensor> parts;
        std::int64_t first = 0;
        for (std::size_t e = 0; e < 3; first += rows[e++])
          parts.push_back(in[0].narrow(0, first, rows[e]).matmul(in[1][static_cast<std::int64_t>(e)].t()));
        return at::cat(parts);
      };
      const auto grouped = [&](const test::Tensors& in) { return grouped_linear(in[0], in[1], rows); };
      const auto dy = [](const at::Tensor& y) { return test::normal(y.sizes(), 3).to(y.options()); };
      const auto ours = test::run(grouped, {x, weight}, dy), truth = test::run(plain, {x, weight}, dy);
      EXPECT_TRUE(at::allclose(ours.y, truth.y, 1e-13, 1e-13));
      for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(ours.grads[i], truth.grads[i], 1e-13, 1e-13)) << i;
    }
  EXPECT_ANY_THROW(grouped_linear(at::zeros({3, 4}), at::zeros({2, 6, 4}), {1, 1}));
}

/// Rows that only the device knows: experts without any, one with all, odd numbers, one token, none at all.
TEST(GroupedLinear, TakesNumbersOfRowsFromTheDevice) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  for (const std::vector<std::int64_t>& rows : std::vector<std::vector<std::int64_t>>{
           {3, 0, 5, 129}, {0, 0, 0, 1}, {0, 777, 0, 0}, {64, 64, 64, 64}, {1, 2, 3, 1000}, {0, 0, 0, 0}}) {
    std::int64_t total = 0;
    std::vector<std::int32_t> ends;
    for (const std::int64_t each : rows) ends.push_back(static_cast<std::int32_t>(total += each));
    const auto bf16 = at::TensorOptions(at::kBFloat16).device(at::kCUDA);
    const at::Tensor x = test::normal({total, 72}, 1).to(bf16), weight = test::normal({4, 40, 72}, 2).to(bf16);
    const at::Tensor ends_E = at::tensor(ends, at::kInt).cuda();
    ASSERT_TRUE(takes_rows_on_device(x, weight));
    const auto by_host = [&](const test::Tensors& in) { return grouped_linear(in[0], in[1], rows); };
    const auto on_device = [&](const test::Tensors& in) { return grouped_linear(in[0], in[1], ends_E); };
    const auto dy = [](const at::Tensor& y) { return test::normal(y.sizes(), 3).to(y.options()); };
    const auto ours = test::run(on_device, {x, weight}, dy), wanted = test::run(by_host, {x, weight}, dy);
    const auto close = [](const at::Tensor& a, const at::Tensor& b) {
      return a.sizes() == b.sizes() && at::allclose(a.to(at::kFloat), b.to(at::kFloat), 2e-2, 2e-1);
    };
    EXPECT_TRUE(close(ours.y, wanted.y)) << total;
    for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(close(ours.grads[i], wanted.grads[i])) << i << " of " << total;
  }
}

}  // namespace
}  // namespace trireme::kernels
