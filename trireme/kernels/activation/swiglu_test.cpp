#include "trireme/kernels/activation/swiglu.hpp"

#include "trireme/testing/kernels_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::kernels {
namespace {

test::Subject swiglu_subject(std::int64_t T, std::int64_t F) {
  return {text("swiglu [", T, ", ", 2 * F, "]"),
          [](const test::Tensors& in) { return swiglu(in[0]); },
          [F](const test::Tensors& in) { return at::silu(in[0].narrow(1, 0, F)) * in[0].narrow(1, F, F); },
          {test::normal({T, 2 * F}, 1) * 3}};
}

TEST(Swiglu, EqualsThePlainFormula) {
  for (const std::int64_t F : {1, 7, 37, 96}) test::expect_all(swiglu_subject(5, F));
  test::expect_all(swiglu_subject(131, 257));
  test::expect_equals_plain(swiglu_subject(0, 7));
}

TEST(Swiglu, IsRightFarOut) {
  const at::Tensor x = at::tensor({-1000.F, -90.F, 90.F, 1000.F, 2.F, 2.F, 2.F, 2.F}).view({1, 8}).requires_grad_();
  const at::Tensor y = swiglu(x);
  EXPECT_TRUE(at::equal(y, at::tensor({0.F, y[0][1].item<float>(), 180.F, 2000.F}).view({1, 4})));
  EXPECT_LE(std::abs(y[0][1].item<double>()), 1e-35);
  y.sum().backward();
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
}

TEST(Swiglu, KeepsItsInputAlone) { EXPECT_THAT(test::inputs_kept(swiglu_subject(4, 8)), testing::ElementsAre(true)); }

TEST(Swiglu, SaysWhatIsWrong) {
  EXPECT_THAT(message_of<InternalError>([] { swiglu(at::ones({4, 7})); }),
              testing::HasSubstr("gate_up of sizes [4, 7]: must be [T, 2F]"));
}

}  // namespace
}  // namespace trireme::kernels
