#include "trireme/kernels/activation/gelu.hpp"

#include <array>

#include "trireme/testing/kernels_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::kernels {
namespace {

test::Subject gelu_subject(std::int64_t T, std::int64_t D, bool tanh_form) {
  return {text(tanh_form ? "tanh" : "exact", " gelu [", T, ", ", D, "]"),
          [=](const test::Tensors& in) { return gelu(in[0], tanh_form); },
          [=](const test::Tensors& in) { return at::gelu(in[0], tanh_form ? "tanh" : "none"); },
          {test::normal({T, D}, 1) * 2}};
}

TEST(Gelu, EqualsThePlainFormula) {
  for (const bool tanh_form : {false, true}) {
    for (const std::int64_t D : {1, 7, 37, 96}) test::expect_all(gelu_subject(5, D, tanh_form));
    test::expect_all(gelu_subject(131, 257, tanh_form));
    test::expect_equals_plain(gelu_subject(0, 7, tanh_form));
  }
}

/// The largest error of y and dx on a fine grid, relative to max(1, |x|).
std::array<double, 2> worst_gelu_errors(bool tanh_form, at::ScalarType dtype) {
  const at::Tensor x = at::linspace(-14, 14, 100'003, at::kDouble).to(dtype).requires_grad_();
  const at::Tensor truth_x = x.detach().to(at::kDouble).requires_grad_();
  const at::Tensor y = gelu(x, tanh_form), truth_y = at::gelu(truth_x, tanh_form ? "tanh" : "none");
  y.sum().backward();
  truth_y.sum().backward();
  const at::Tensor unit = truth_x.detach().abs().clamp_min(1);
  return {((y.detach() - truth_y.detach()).abs() / unit).max().item<double>(),
          ((x.grad() - truth_x.grad()).abs() / unit).max().item<double>()};
}

TEST(Gelu, IsAsExactAsPromised) {
  for (const bool tanh_form : {false, true}) {
    EXPECT_THAT(worst_gelu_errors(tanh_form, at::kFloat), testing::Each(testing::Le(1e-6))) << tanh_form;
    EXPECT_THAT(worst_gelu_errors(tanh_form, at::kDouble), testing::Each(testing::Le(1e-14))) << tanh_form;
  }
}

TEST(Gelu, IsExactFarOut) {
  for (const bool tanh_form : {false, true}) {
    const at::Tensor x = at::tensor({-1000.F, -30.F, 30.F, 1000.F}).requires_grad_();
    const at::Tensor y = gelu(x, tanh_form);
    EXPECT_TRUE(at::equal(y.detach(), at::tensor({0.F, 0.F, 30.F, 1000.F}))) << y;
    y.sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), at::tensor({0.F, 0.F, 1.F, 1.F}))) << x.grad();
  }
}

TEST(Gelu, KeepsItsInputAlone) { EXPECT_THAT(test::inputs_kept(gelu_subject(4, 8, true)), testing::ElementsAre(true)); }

TEST(Gelu, SaysWhatIsWrong) {
  EXPECT_THAT(message_of<InternalError>([] { gelu(at::ones({4, 7}).t(), false); }),
              testing::HasSubstr("must be contiguous"));
}

}  // namespace
}  // namespace trireme::kernels
