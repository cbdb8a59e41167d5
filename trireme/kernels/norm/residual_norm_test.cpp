#include "trireme/kernels/norm/residual_norm.hpp"

#include "trireme/kernels/norm/layer_norm.hpp"
#include "trireme/kernels/norm/rms_norm.hpp"
#include "trireme/testing/kernels_helpers.hpp"

namespace trireme::kernels {
namespace {

struct ResidualCase {
  std::int64_t T, D;
  bool layer, residual;
};

/// Both results in one tensor: the gradients of both reach the inputs.
test::Subject residual_subject(const ResidualCase& c) {
  return {text(c.layer ? "layer" : "RMS", " norm [", c.T, ", ", c.D, "]", c.residual ? " + residual" : ""),
          [c](const test::Tensors& in) {
            const auto [sum, y] =
                residual_norm(in[0], c.residual ? in[1] : at::Tensor(), in[2], c.layer ? in[3] : at::Tensor(), 1e-5);
            return at::cat({sum, y}, 1);
          },
          [c](const test::Tensors& in) {
            const at::Tensor sum = c.residual ? in[0] + in[1] : in[0] + 0;
            const at::Tensor centred = c.layer ? sum - sum.mean(-1, true) : sum;
            const at::Tensor y = centred * at::rsqrt(centred.pow(2).mean(-1, true) + 1e-5) * in[2];
            return at::cat({sum, c.layer ? y + in[3] : y}, 1);
          },
          {test::normal({c.T, c.D}, 1), c.residual ? test::normal({c.T, c.D}, 2) : at::Tensor(),
           test::normal({c.D}, 3) + 1, c.layer ? test::normal({c.D}, 4) : at::Tensor()}};
}

/// The sum is rounded before its norm is taken, the formula's is not.
void expect_equals_formula(const ResidualCase& c) {
  const test::Subject subject = residual_subject(c);
  for (const auto& [dtype, bound] : std::vector<std::pair<at::ScalarType, double>>{
           {at::kDouble, 1e-12}, {at::kFloat, 1e-5}, {at::kBFloat16, 2e-2}, {at::kHalf, 4e-3}})
    test::expect_equals_plain(subject, dtype, bound);
}

TEST(ResidualNorm, EqualsThePlainFormula) {
  for (const bool layer : {false, true})
    for (const bool residual : {false, true}) {
      // A GPU's kernel needs rows of a multiple of 16 bytes, and has forms for 1, 2, 4 and 8 vectors per thread.
      for (const std::int64_t D : {7, 8, 96, 1000}) expect_equals_formula({13, D, layer, residual});
      for (const std::int64_t D : {3000, 6000, 9000})
        test::expect_equals_plain(residual_subject({3, D, layer, residual}), at::kFloat, 1e-5);
      test::expect_equals_plain(residual_subject({3, 20'000, layer, residual}), at::kBFloat16, 2e-2);
      expect_equals_formula({0, 8, layer, residual});
    }
  // More rows than blocks.
  test::expect_equals_plain(residual_subject({2500, 64, true, true}), at::kFloat, 1e-5);
  test::expect_equals_plain(residual_subject({2500, 64, false, true}), at::kDouble, 1e-12);
}

/// The norm alone, or the stream alone, may be used.
TEST(ResidualNorm, OneResultMayBeUnused) {
  for (const at::Device device : test::devices()) {
    const auto input = [&](std::uint64_t seed, at::IntArrayRef sizes) {
      return test::normal(sizes, seed).to(device, at::kFloat).requires_grad_();
    };
    const at::Tensor x = input(1, {5, 16}), residual = input(2, {5, 16}), weight = input(3, {16});
    const at::Tensor dy = test::normal({5, 16}, 4).to(device, at::kFloat);
    residual_norm(x, residual, weight, {}, 1e-5).sum.backward(dy);
    EXPECT_TRUE(at::equal(x.grad(), dy) && at::equal(residual.grad(), dy));
    EXPECT_FALSE(weight.grad().defined());
    x.mutable_grad().reset();
    residual_norm(x, residual, weight, {}, 1e-5).y.backward(dy);
    const at::Tensor expected = torch::autograd::grad({rms_norm(x + residual, weight, 1e-5)}, {x}, {dy})[0];
    EXPECT_LE(test::difference(x.grad(), expected.cpu().to(at::kDouble)), 1e-6);
  }
}

/// Weights and gradients may be views that begin anywhere in a flat buffer.
TEST(ResidualNorm, TakesViewsOfAnyAddress) {
  for (const at::Device device : test::devices()) {
    const auto view = [&](std::uint64_t seed, std::int64_t rows) {
      return test::normal({rows * 16 + 1}, seed).to(device, at::kFloat).narrow(0, 1, rows * 16).view({rows, 16});
    };
    const at::Tensor x = test::normal({5, 16}, 1).to(device, at::kFloat).requires_grad_(), residual = view(2, 5),
                     weight = view(3, 1)[0].requires_grad_(), bias = view(4, 1)[0];
    const auto [sum, y] = residual_norm(x, residual, weight, bias, 1e-5);
    const auto got = torch::autograd::grad({sum, y}, {x, weight}, {view(5, 5), view(6, 5)});
    const at::Tensor plain_sum = x + residual.clone();
    const at::Tensor plain = layer_norm(plain_sum, weight.clone(), bias.clone(), 1e-5);
    const auto wanted = torch::autograd::grad({plain_sum, plain}, {x, weight}, {view(5, 5), view(6, 5)});
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_LE(test::difference(got[i], wanted[i].to(at::kCPU, at::kDouble)), 1e-6) << device << i;
  }
}

/// A GPU adds rows in an order that does not depend on anything but their number.
TEST(ResidualNorm, RepeatsBitByBit) {
  for (const at::Device device : test::devices()) {
    const test::Subject subject = residual_subject({3000, 96, true, true});
    const test::Tensors inputs = test::cast(subject, at::kBFloat16, device);
    test::expect_same_bits(test::run(subject.ours, inputs, test::plain_dy),
                           test::run(subject.ours, inputs, test::plain_dy));
  }
}

}  // namespace
}  // namespace trireme::kernels
