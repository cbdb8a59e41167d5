#include "trireme/kernels/norm/rms_norm.hpp"

#include "trireme/testing/kernels_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::kernels {
namespace {

using testing::HasSubstr;

test::Subject rms_norm_subject(std::int64_t T, std::int64_t D) {
  const double eps = D == 1 ? 0.1 : 1e-5;  // for D = 1 the result is always 1 except for eps
  return {text("rms_norm [", T, ", ", D, "]"),
          [eps](const test::Tensors& in) { return rms_norm(in[0], in[1], eps); },
          [eps](const test::Tensors& in) { return in[1] * (in[0] * at::rsqrt(in[0].pow(2).mean(-1, true) + eps)); },
          {test::normal({T, D}, 1), test::normal({D}, 2) + 1}};
}

TEST(RmsNorm, EqualsThePlainFormula) {
  for (const std::int64_t D : {1, 7, 37, 96}) test::expect_all(rms_norm_subject(5, D));
  test::expect_all(rms_norm_subject(131, 257));
  test::expect_equals_plain(rms_norm_subject(0, 7));
}

TEST(RmsNorm, TakesAnyNumberOfDims) {
  const at::Tensor x = test::normal({3, 5, 8}, 3), weight = test::normal({8}, 4);
  EXPECT_TRUE(at::equal(rms_norm(x, weight, 1e-6), rms_norm(x.view({15, 8}), weight, 1e-6).view({3, 5, 8})));
}

TEST(RmsNorm, KeepsXAndWeight) {
  EXPECT_THAT(test::inputs_kept(rms_norm_subject(4, 8)), testing::ElementsAre(true, true));
}

TEST(RmsNorm, SaysWhatIsWrong) {
  const at::Tensor x = at::ones({4, 6});
  EXPECT_THAT(message_of<InternalError>([&] { rms_norm(x, at::ones({5}), 1e-5); }),
              HasSubstr("weight of sizes [5], Float on cpu: must be of sizes [6], Float on cpu"));
  EXPECT_THAT(message_of<InternalError>([&] { rms_norm(x.t(), at::ones({4}), 1e-5); }),
              HasSubstr("x of sizes [6, 4] has strides [1, 6]: must be contiguous"));
  EXPECT_THAT(message_of<InternalError>([&] { rms_norm(x.to(at::kInt), at::ones({6}), 1e-5); }),
              HasSubstr("dtype Int: must be float, double, bfloat16 or half"));
}

}  // namespace
}  // namespace trireme::kernels
