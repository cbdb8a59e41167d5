#include "trireme/kernels/attention/rope.hpp"

#include "trireme/testing/kernels_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::kernels {
namespace {

using testing::HasSubstr;

struct Angles {
  at::Tensor cos, sin;  // in the dtype that rope needs for x
};

/// For positions 3, 4, ... with base 10000, rounded to f32 so that all dtypes see the same.
Angles angles(std::int64_t T, std::int64_t h, const at::Tensor& x) {
  const at::Tensor frequency = at::pow(10000.0, -at::arange(h, at::kDouble) / std::max<std::int64_t>(h, 1));
  const at::Tensor angle = at::outer(at::arange(3, 3 + T, at::kDouble), frequency);
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {angle.cos().to(at::kFloat).to(x.device(), wide), angle.sin().to(at::kFloat).to(x.device(), wide)};
}

test::Subject rope_subject(std::int64_t T, std::int64_t heads, std::int64_t d, std::int64_t rotated) {
  return {text("rope [", T, ", ", heads, ", ", d, "], ", rotated, " rotated"),
          [=](const test::Tensors& in) {
            const auto [cos, sin] = angles(T, d / 2, in[0]);
            return rope(in[0], cos, sin, rotated);
          },
          [=](const test::Tensors& in) {  // Hugging Face's formula
            const auto [cos, sin] = angles(T, d / 2, in[0]);
            const at::Tensor c = at::cat({cos, cos}, 1).unsqueeze(1), s = at::cat({sin, sin}, 1).unsqueeze(1);
            const at::Tensor x = in[0].narrow(1, 0, rotated);
            const at::Tensor half = at::cat({-x.narrow(2, d / 2, d / 2), x.narrow(2, 0, d / 2)}, 2);
            return at::cat({x * c + half * s, in[0].narrow(1, rotated, heads - rotated)}, 1);
          },
          {test::normal({T, heads, d}, 1)}};
}

TEST(Rope, EqualsThePlainFormula) {
  for (const std::int64_t d : {2, 14, 74, 96}) test::expect_all(rope_subject(5, 3, d, 2));
  test::expect_all(rope_subject(131, 4, 64, 3));
  for (const std::int64_t rotated : {0, 3}) test::expect_equals_plain(rope_subject(7, 3, 8, rotated));
  test::expect_equals_plain(rope_subject(0, 3, 8, 2));
}

TEST(Rope, DoesNotKeepX) { EXPECT_THAT(test::inputs_kept(rope_subject(4, 2, 8, 2)), testing::ElementsAre(false)); }

TEST(Rope, NeverReturnsItsInput) {
  const at::Tensor x = at::ones({2, 2, 4});
  const auto [cos, sin] = angles(2, 2, x);
  EXPECT_FALSE(rope(x, cos, sin, 0).is_alias_of(x));
}

TEST(Rope, SaysWhatIsWrong) {
  const at::Tensor x = at::ones({2, 3, 4}), c = at::ones({2, 2});
  EXPECT_THAT(message_of<InternalError>([&] { rope(x, c, c, 4); }), HasSubstr("rotated_heads = 4"));
  EXPECT_THAT(message_of<InternalError>([&] { rope(at::ones({2, 3, 5}), c, c, 1); }), HasSubstr("with an even d"));
  EXPECT_THAT(message_of<InternalError>([&] { rope(x.to(at::kBFloat16), c.to(at::kBFloat16), c, 1); }),
              HasSubstr("cos of sizes [2, 2], BFloat16 on cpu: must be of sizes [2, 2], Float"));
  EXPECT_THAT(message_of<InternalError>([&] { rope(x, at::ones({3, 2}), c, 1); }), HasSubstr("cos of sizes [3, 2]"));
}

}  // namespace
}  // namespace trireme::kernels
