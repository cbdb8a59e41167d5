#include "trireme/kernels/norm/layer_norm.hpp"

#include "trireme/testing/kernels_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::kernels {
namespace {

test::Subject layer_norm_subject(std::int64_t T, std::int64_t D) {
  return {text("layer_norm [", T, ", ", D, "]"),
          [](const test::Tensors& in) { return layer_norm(in[0], in[1], in[2], 1e-5); },
          [](const test::Tensors& in) {
            const at::Tensor centred = in[0] - in[0].mean(-1, true);
            return centred * at::rsqrt(centred.pow(2).mean(-1, true) + 1e-5) * in[1] + in[2];
          },
          {test::normal({T, D}, 1), test::normal({D}, 2) + 1, test::normal({D}, 3)}};
}

TEST(LayerNorm, EqualsThePlainFormula) {
  for (const std::int64_t D : {2, 7, 37, 96}) test::expect_all(layer_norm_subject(5, D));
  test::expect_all(layer_norm_subject(131, 257));
  test::expect_equals_plain(layer_norm_subject(0, 7));
}

TEST(LayerNorm, OfOneColumnIsTheBias) {
  const at::Tensor x = test::normal({5, 1}, 1).to(at::kFloat).requires_grad_();
  const at::Tensor y = layer_norm(x, at::full({1}, 2.F), at::full({1}, 3.F), 1e-5);
  EXPECT_TRUE(at::equal(y, at::full({5, 1}, 3.F)));
  y.sum().backward();
  EXPECT_LE(x.grad().abs().max().item<double>(), 1e-3);  // rounding times rstd, which is 316 here
}

TEST(LayerNorm, KeepsDigitsWhereTheMeanIsLarge) {
  const at::Tensor x = (test::normal({3, 40}, 4) + 1000).to(at::kFloat);
  const at::Tensor y = layer_norm(x, at::ones({40}), at::zeros({40}), 1e-5);
  EXPECT_LE(test::difference(y, at::layer_norm(x.to(at::kDouble), {40})), 1e-4);
}

TEST(LayerNorm, KeepsItsInputs) {
  EXPECT_THAT(test::inputs_kept(layer_norm_subject(4, 8)), testing::ElementsAre(true, true, true));
}

TEST(LayerNorm, SaysWhatIsWrong) {
  EXPECT_THAT(message_of<InternalError>([] { layer_norm(at::ones({4, 6}), at::ones({6}), at::ones({4}), 1e-5); }),
              testing::HasSubstr("bias of sizes [4], Float on cpu: must be of sizes [6], Float on cpu"));
}

}  // namespace
}  // namespace trireme::kernels
