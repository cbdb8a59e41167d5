#include "trireme/kernels/activation/geglu.hpp"

#include "trireme/testing/kernels_helpers.hpp"

namespace trireme::kernels {
namespace {

TEST(Geglu, EqualsTheFormula) {
  for (const at::Device device : test::devices())
    for (const bool tanh : {false, true}) {
      const at::Tensor gate_up = test::normal({5, 14}, 1).to(device);
      const auto plain = [&](const test::Tensors& in) {
        return at::gelu(in[0].narrow(1, 0, 7), tanh ? "tanh" : "none") * in[0].narrow(1, 7, 7);
      };
      const auto dy = [](const at::Tensor& y) { return test::normal(y.sizes(), 2).to(y.options()); };
      const auto ours = test::run([&](const test::Tensors& in) { return geglu(in[0], tanh); }, {gate_up}, dy);
      const auto truth = test::run(plain, {gate_up}, dy);
      EXPECT_LT(test::difference(ours.y.cpu(), truth.y.cpu()), 1e-14);
      EXPECT_LT(test::difference(ours.grads[0].cpu(), truth.grads[0].cpu()), 1e-14);
    }
  EXPECT_ANY_THROW(geglu(at::zeros({2, 3}), true));
}

}  // namespace
}  // namespace trireme::kernels
