#include "trireme/kernels/attention/dropped_attention.hpp"

#include <cmath>
#include <limits>

#include "trireme/kernels/attention/flash_attention.hpp"
#include "trireme/testing/kernels_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::kernels {
namespace {

struct DroppedCase {
  std::int64_t b, h, g, s, d;
  int mask;  // 0: causal, 1: [s, s], 2: [b, 1, s, s]
  std::int64_t tile_elements;
};

at::Tensor dropped_mask(const DroppedCase& c) {
  const at::Tensor causal = at::ones({c.s, c.s}, at::kBool).tril_();
  if (c.mask == 0) return {};
  if (c.mask == 1) return causal.triu(-3);
  const at::Tensor documents = (test::normal({c.b, c.s}, 9) > 0.8).cumsum(1);
  return documents.unsqueeze(2).eq(documents.unsqueeze(1)).logical_and_(causal).unsqueeze(1);
}

AttentionDropout dropout_of(const DroppedCase& c, double p) {
  return {.p = p,
          .key = dropout_key(7, "attention"),
          .rows_bhs = at::arange(c.b * c.h * c.s).view({c.b, c.h, c.s}),
          .row_width = c.s,
          .tile_elements = c.tile_elements};
}

/// All probabilities at once.
at::Tensor plain_dropped_attention(const test::Tensors& in, const DroppedCase& c, double p) {
  const auto wide = [&](const at::Tensor& x) { return x.repeat_interleave(c.h / x.size(1), 1); };
  const at::Tensor scores = at::matmul(in[0], wide(in[1]).transpose(2, 3)) / std::sqrt(static_cast<double>(c.d));
  at::Tensor sees = dropped_mask(c);
  if (!sees.defined()) sees = at::ones({c.s, c.s}, at::kBool).tril_();
  const at::Tensor probs = at::softmax(
      scores.masked_fill(sees.to(scores.device()).logical_not(), -std::numeric_limits<double>::infinity()), -1);
  const AttentionDropout dropout = dropout_of(c, p);
  const at::Tensor keeps =
      keep_mask(p, dropout.key, {.rows = dropout.rows_bhs.flatten(), .row_width = c.s}, c.s).view({c.b, c.h, c.s, c.s});
  return at::matmul(probs * keeps.to(scores.device()) / (1 - p), wide(in[2]));
}

test::Tensors dropped_inputs(const DroppedCase& c, at::ScalarType dtype, at::Device device) {
  test::Tensors in;
  for (int i = 0; i < 3; ++i)
    in.push_back(test::normal({c.b, i == 0 ? c.h : c.g, c.s, c.d}, i + 1).to(dtype).to(device).requires_grad_());
  return in;
}

const std::vector<DroppedCase> kDropped = {{1, 1, 1, 5, 4, 0, 1 << 20},  {2, 4, 2, 20, 8, 0, 1 << 20},
                                           {2, 4, 2, 20, 8, 0, 400},     {2, 2, 1, 40, 8, 0, 320},
                                           {2, 4, 4, 36, 8, 1, 36 * 40}, {3, 2, 2, 36, 8, 2, 36 * 36 * 2},
                                           {3, 2, 2, 36, 8, 2, 36 * 16}};

TEST(DroppedAttention, EqualsThePlainFormulaInEveryTiling) {
  for (const DroppedCase& c : kDropped) {
    const std::string what =
        text("b ", c.b, " h ", c.h, " g ", c.g, " s ", c.s, " mask ", c.mask, " tiles of ", c.tile_elements);
    const test::Tensors ours = dropped_inputs(c, at::kDouble, at::kCPU),
                        plain = dropped_inputs(c, at::kDouble, at::kCPU);
    const at::Tensor y = dropped_attention(ours[0], ours[1], ours[2], dropped_mask(c), dropout_of(c, 0.3));
    const at::Tensor wanted = plain_dropped_attention(plain, c, 0.3);
    EXPECT_TRUE(at::allclose(y, wanted, 1e-12, 1e-12)) << what;
    const at::Tensor dy = test::normal(y.sizes(), 8);
    y.backward(dy);
    wanted.backward(dy);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(at::allclose(ours[i].grad(), plain[i].grad(), 1e-11, 1e-12)) << what << " input " << i;
  }
}

TEST(DroppedAttention, OnCudaDropsTheSame) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const DroppedCase& c : kDropped) {
    if (c.s % 4 != 0) continue;
    const test::Tensors ours = dropped_inputs(c, at::kBFloat16, at::kCUDA);
    test::Tensors plain;
    for (const at::Tensor& x : ours) plain.push_back(x.detach().cpu().to(at::kDouble).requires_grad_());
    AttentionDropout dropout = dropout_of(c, 0.3);
    dropout.rows_bhs = dropout.rows_bhs.cuda();
    const at::Tensor sees = dropped_mask(c);
    const at::Tensor y = dropped_attention(ours[0], ours[1], ours[2], sees.defined() ? sees.cuda() : sees, dropout);
    const at::Tensor wanted = plain_dropped_attention(plain, c, 0.3);
    EXPECT_TRUE(at::allclose(y.to(at::kDouble).cpu(), wanted, 0.05, 0.03)) << c.s << " " << c.mask;
    const at::Tensor dy = test::normal(y.sizes(), 8);
    y.backward(dy.to(at::kBFloat16).cuda());
    wanted.backward(dy);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_LE((ours[i].grad().to(at::kDouble).cpu() - plain[i].grad()).norm().item<double>(),
                0.02 * plain[i].grad().norm().item<double>())
          << c.s << " " << c.mask << " input " << i;
  }
}

// --- flash_attention.hpp, on a GPU ---------------------------------------------------------------------------------

struct FlashRun {
  at::Tensor y, dx;
};
template <class F>
FlashRun run_flash(const at::Tensor& packed, const at::Tensor& dy, const F& f) {
  const at::Tensor x = packed.detach().clone().requires_grad_();
  const at::Tensor y = f(x);
  y.backward(dy);
  return {y.detach(), x.grad()};
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() / b.to(at::kDouble).norm()).item<double>();
}

/// Samples and heads of one rank, next to those of ranks with parts of them.
TEST(FlashDropout, EveryLayoutDropsTheSame) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  constexpr std::int64_t b = 4, s = 160, h = 4, g = 2, d = 64;
  const at::Tensor packed = test::normal({b, s, h + 2 * g, d}, 1).to(at::kBFloat16).cuda();
  const at::Tensor dy = test::normal({b, s, h, d}, 2).to(at::kBFloat16).cuda();
  const auto run = [&](const at::Tensor& x, const at::Tensor& gradient, std::int64_t heads,
                       const FlashDropout& dropout) {
    return run_flash(x, gradient,
                     [&](const at::Tensor& in) { return flash_attention_with_dropout(in, heads, dropout); });
  };
  const FlashDropout all{.p = 0.2, .seed = 11, .samples = {5, 6, 7, 8}, .heads = h, .first_head = 0};
  const FlashRun one = run(packed, dy, h, all), again = run(packed, dy, h, all);
  EXPECT_TRUE(one.y.equal(again.y));
  FlashDropout other = all;
  other.seed = 12;
  EXPECT_FALSE(one.y.equal(run(packed, dy, h, other).y));
  const FlashRun none = run_flash(packed, dy, [&](const at::Tensor& in) { return flash_attention(in, h, {}); });
  EXPECT_GT(relative_error(one.y, none.y), 0.1) << "something is dropped";
  // Half of the samples, and samples that do not follow each other.
  for (const std::vector<std::int64_t>& some : {std::vector<std::int64_t>{2, 3}, std::vector<std::int64_t>{3, 0}}) {
    const at::Tensor index = at::tensor(some).cuda();
    FlashDropout part = all;
    part.samples.clear();
    for (const std::int64_t i : some) part.samples.push_back(all.samples[static_cast<std::size_t>(i)]);
    const FlashRun found = run(packed.index_select(0, index), dy.index_select(0, index), h, part);
    EXPECT_TRUE(found.y.equal(one.y.index_select(0, index)));
    EXPECT_LE(relative_error(found.dx, one.dx.index_select(0, index)), 1e-2);
  }
  // The second half of the heads.
  const at::Tensor own = at::tensor({2, 3, 5, 7}).cuda();
  FlashDropout half = all;
  half.first_head = 2;
  const FlashRun found = run(packed.index_select(2, own), dy.narrow(2, 2, 2).contiguous(), 2, half);
  EXPECT_TRUE(found.y.equal(one.y.narrow(2, 2, 2)));
  EXPECT_LE(relative_error(found.dx, one.dx.index_select(2, own)), 1e-2);
}

/// The share of dropped probabilities: with values of one, a result is the sum of the kept ones.
TEST(FlashDropout, KeepsTheExpectation) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  constexpr std::int64_t b = 8, s = 512, h = 8, d = 64;
  const at::Tensor packed = test::normal({b, s, 3 * h, d}, 1).to(at::kBFloat16).cuda();
  packed.narrow(2, 2 * h, h).fill_(1);
  for (const double p : {0.1, 0.5}) {
    const at::Tensor y = flash_attention_with_dropout(
        packed, h, {.p = p, .seed = 3, .samples = {0, 1, 2, 3, 4, 5, 6, 7}, .heads = h, .first_head = 0});
    EXPECT_NEAR(y.to(at::kDouble).mean().item<double>(), 1, 0.01) << p;
  }
}

TEST(FlashAttention, DocumentsAndWindowsEqualAMask) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  constexpr std::int64_t b = 2, s = 96, h = 4, g = 2, d = 64;
  const at::Tensor packed = test::normal({b, s, h + 2 * g, d}, 1).to(at::kBFloat16).cuda();
  const at::Tensor dy = test::normal({b, s, h, d}, 2).to(at::kBFloat16).cuda();
  const std::vector<int> bounds = {0, 10, 11, 96, 130, 192};
  const at::Tensor token = at::arange(b * s),
                   number = at::searchsorted(at::tensor(bounds), token, false, true).view({b, s});
  const at::Tensor causal = at::ones({s, s}, at::kBool).tril_();
  for (const std::int64_t window : {0, 7})
    for (const bool apart : {false, true}) {
      if (window == 0 && !apart) continue;
      at::Tensor sees = window > 0 ? causal.triu(1 - window) : causal;
      sees = sees.expand({b, 1, s, s});
      if (apart) sees = number.view({b, 1, s, 1}).eq(number.view({b, 1, 1, s})).logical_and(sees);
      FlashMask mask{.bounds = {}, .longest = 0, .window = window};
      if (apart) mask = {.bounds = at::tensor(bounds, at::kInt).cuda(), .longest = 85, .window = window};
      const FlashRun found = run_flash(packed, dy, [&](const at::Tensor& in) { return flash_attention(in, h, mask); });
      const at::Tensor wide = packed.to(at::kDouble).requires_grad_();
      const at::Tensor heads = wide.transpose(1, 2);
      const at::Tensor y =
          at::scaled_dot_product_attention(heads.narrow(1, 0, h), heads.narrow(1, h, g), heads.narrow(1, h + g, g),
                                           sees.cuda(), 0.0, false, std::nullopt, true)
              .transpose(1, 2);
      y.backward(dy.to(at::kDouble));
      EXPECT_LE(relative_error(found.y, y), 0.01) << window << apart;
      EXPECT_LE(relative_error(found.dx, wide.grad()), 0.02) << window << apart;
    }
}

}  // namespace
}  // namespace trireme::kernels
