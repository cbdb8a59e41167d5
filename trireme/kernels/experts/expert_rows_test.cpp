#include "trireme/kernels/experts/expert_rows.hpp"

#include <ATen/ops/argsort.h>

#include "trireme/testing/kernels_helpers.hpp"

namespace trireme::kernels {
namespace {

/// A permutation of T k places that looks random.
at::Tensor places(std::int64_t T, std::int64_t k) { return at::argsort(test::normal({T * k}, 5)).view({T, k}); }

test::Subject spread_subject(std::int64_t T, std::int64_t k, std::int64_t D) {
  return {text("rows of ", T, " tokens, ", k, " experts, ", D, " features"),
          [](const test::Tensors& in) { return spread_rows(in[0], in[1]); },
          [k](const test::Tensors& in) {
            const at::Tensor order = at::argsort(in[1].flatten());  // of the (token, expert) pairs, by place
            return in[0].index_select(0, order.floor_divide(k));
          },
          {test::normal({T, D}, 1), places(T, k)}};
}

at::Tensor plain_gather(const test::Tensors& in) {
  const at::Tensor of_tokens =
      in[0].index_select(0, in[1].flatten()).view({in[1].size(0), in[1].size(1), in[0].size(1)});
  return (of_tokens * in[2].unsqueeze(2)).sum(1);
}

constexpr std::int64_t kRowSizes[][3] = {{5, 2, 8}, {1, 1, 16}, {33, 4, 1024}, {7, 8, 264}, {3, 2, 5}, {0, 2, 8}};

TEST(ExpertRows, SpreadEqualsThePlainFormula) {
  for (const auto& [T, k, D] : kRowSizes) test::expect_equals_plain(spread_subject(T, k, D));
  test::expect_takes_any_gradient(spread_subject(33, 4, 64));
  test::expect_same_with_any_threads(spread_subject(33, 4, 64), test::WithThreads::same_bits);
}

/// The weights stay in f32, or in f64: their gradients are compared by hand.
TEST(ExpertRows, GatherEqualsThePlainFormula) {
  for (const at::Device device : test::devices())
    for (const auto& [dtype, bound] : std::vector<std::pair<at::ScalarType, double>>{
             {at::kDouble, 1e-12}, {at::kFloat, 1e-5}, {at::kBFloat16, 0x1.1p-8}, {at::kHalf, 0x1.1p-11}})
      for (const auto& [T, k, D] : kRowSizes) {
        const std::string which = text(T, " x ", k, " x ", D, " in ", dtype, " on ", device);
        const at::Tensor rows = test::normal({T * k, D}, 1).to(device, dtype), place = places(T, k).to(device);
        const at::Tensor weights = test::normal({T, k}, 2).to(device, dtype == at::kDouble ? at::kDouble : at::kFloat);
        const auto ours = test::run([](const test::Tensors& in) { return gather_rows(in[0], in[1], in[2]); },
                                    {rows, place, weights}, test::plain_dy);
        const auto truth =
            test::run(plain_gather, {rows.cpu().to(at::kDouble), place.cpu(), weights.cpu().to(at::kDouble)},
                      [&](const at::Tensor&) { return test::plain_dy(ours.y).cpu().to(at::kDouble); });
        EXPECT_EQ(ours.y.scalar_type(), dtype) << which;
        EXPECT_LE(test::difference(ours.y, truth.y), bound) << which;
        EXPECT_LE(test::difference(ours.grads[0], truth.grads[0]), bound) << which;
        EXPECT_LE(test::difference(ours.grads[2], truth.grads[2]), std::min(bound, 1e-5)) << which;
      }
}

TEST(ExpertRows, SizesThatDoNotFitAreRefused) {
  const at::Tensor x = at::zeros({4, 8}), place = places(4, 2);
  EXPECT_ANY_THROW(spread_rows(at::zeros({3, 8}), place));
  EXPECT_ANY_THROW(spread_rows(x, place.to(at::kInt)));
  EXPECT_ANY_THROW(gather_rows(x, place, at::ones({4, 2})));
  EXPECT_ANY_THROW(gather_rows(at::zeros({8, 8}), place, at::ones({4, 2}, at::kDouble)));
}

}  // namespace
}  // namespace trireme::kernels
