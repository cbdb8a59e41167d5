#include "trireme/kernels/grouped_linear.hpp"

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

}  // namespace
}  // namespace trireme::kernels
