#include "trireme/kernels/loss/cross_entropy.hpp"

#include <cmath>
#include <limits>

#include "trireme/kernels/loss/fused_logits.hpp"
#include "trireme/testing/kernels_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::kernels {
namespace {

using testing::HasSubstr;

/// Targets in 0 ... V - 1; the last row is ignored if there are several.
at::Tensor some_targets(std::int64_t T, std::int64_t V) {
  const at::Tensor targets = at::arange(T, at::kLong).mul(7).add(3).remainder(V);
  if (T > 1) targets[T - 1] = -100;
  return targets;
}

test::Subject cross_entropy_subject(std::int64_t T, std::int64_t V) {
  return {text("cross_entropy [", T, ", ", V, "]"),
          [](const test::Tensors& in) { return cross_entropy(in[0], in[1]); },
          [](const test::Tensors& in) {
            return at::nll_loss(at::log_softmax(in[0], 1), in[1], {}, at::Reduction::None, -100);
          },
          {test::normal({T, V}, 1) * 4, some_targets(T, V)}};
}

TEST(CrossEntropy, EqualsThePlainFormula) {
  for (const std::int64_t V : {2, 7, 37, 96}) test::expect_all(cross_entropy_subject(5, V));
  test::expect_all(cross_entropy_subject(131, 257));
  test::expect_equals_plain(cross_entropy_subject(0, 7));
}

TEST(CrossEntropy, OfOneColumnIsZero) {
  const at::Tensor logits = at::full({3, 1}, 5.F).requires_grad_();
  const at::Tensor losses = cross_entropy(logits, at::zeros({3}, at::kLong));
  EXPECT_TRUE(at::equal(losses, at::zeros({3})));
  losses.sum().backward();
  EXPECT_TRUE(at::equal(logits.grad(), at::zeros({3, 1})));
}

TEST(CrossEntropy, KeepsLogitsAndTargets) {
  EXPECT_THAT(test::inputs_kept(cross_entropy_subject(4, 8)), testing::ElementsAre(true, true));
}

TEST(CrossEntropy, TakesLargeLogitsAndShowsNan) {
  const at::Tensor large = at::tensor({1e30F, -1e30F, 0.F, 1e4F, 1e4F, -1e38F}).view({2, 3});
  EXPECT_TRUE(at::allclose(cross_entropy(large, at::zeros({2}, at::kLong)), at::tensor({0.F, std::log(2.F)})));
  const at::Tensor nan = at::tensor({0.F, std::numeric_limits<float>::quiet_NaN(), 1.F}).view({1, 3});
  EXPECT_TRUE(cross_entropy(nan, at::zeros({1}, at::kLong)).isnan().all().item<bool>());
}

/// The stages see V columns of a wider matrix: the same bits, and the columns of padding stay as they are.
TEST(CrossEntropy, StagesLeaveColumnsOfPaddingAlone) {
  constexpr std::int64_t C = 5, V = 37, kFirst = 10;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor logits = (test::normal({C, V}, 1) * 4).to(dtype).contiguous();
    at::Tensor wide = at::full({C, 64}, 1e4, logits.options());
    const at::Tensor narrow = wide.narrow(1, 0, V).copy_(logits);
    const at::Tensor targets = at::tensor({10, 46, 9, 47, 20}, at::kLong), ones = at::ones({C}, logits.options());
    const at::Tensor max = row_max(logits);
    EXPECT_TRUE(at::equal(row_max(narrow), max));
    EXPECT_TRUE(
        at::equal(exp_sums_(narrow, max, targets, kFirst, true), exp_sums_(logits, max, targets, kFirst, true)));
    EXPECT_TRUE(at::equal(narrow, logits));
    for (const at::Tensor& x : {narrow, logits}) logit_grads_(x, 0.5 * ones, targets, kFirst, ones, 0.1 * ones);
    EXPECT_TRUE(at::equal(narrow, logits));
    EXPECT_TRUE(wide.narrow(1, V, 64 - V).eq(1e4).all().item<bool>());
    EXPECT_THAT(message_of<InternalError>([&] { row_max(logits.t()); }), HasSubstr("each row must be contiguous"));
  }
}

TEST(CrossEntropy, SaysWhatIsWrong) {
  const at::Tensor logits = at::ones({2, 5});
  EXPECT_THAT(message_of<DataError>([&] { cross_entropy(logits, at::tensor({1, 5}, at::kLong)); }),
              HasSubstr("target 5 of row 1 is outside of the vocabulary, 0 to 4 (ignored: -100)"));
  EXPECT_THAT(message_of<InternalError>([&] { cross_entropy(logits, at::zeros({3}, at::kLong)); }),
              HasSubstr("targets of sizes [3], Long on cpu: must be of sizes [2], Long"));
  EXPECT_THAT(message_of<InternalError>([&] { row_max(logits.to(at::kBFloat16)); }),
              HasSubstr("logits of BFloat16: must be float or double"));
}

/// The loss with label smoothing and its gradient, for logits whose columns are split into parts that simulate ranks.
void expect_parts_equal_whole(at::ScalarType dtype, at::Device device, std::vector<std::int64_t> widths,
                              double smoothing, double tolerance) {
  SCOPED_TRACE(text(dtype, " on ", device, ", ", widths.size(), " parts"));
  const std::int64_t C = 67;
  std::int64_t V = 0;
  for (const std::int64_t width : widths) V += width;
  const at::Tensor whole = (test::normal({C, V}, 1) * 3).to(device, dtype), targets = some_targets(C, V).to(device);
  const at::Tensor truth_logits = whole.to(at::kCPU, at::kDouble).requires_grad_();
  const at::Tensor truth =
      at::cross_entropy_loss(truth_logits, targets.cpu(), {}, at::Reduction::None, -100, smoothing);
  const at::Tensor dloss = test::normal({C}, 2);
  truth.backward(dloss);

  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : whole.split_with_sizes(widths, 1)) parts.push_back(part.contiguous());
  at::Tensor max = row_max(parts[0]);
  for (const at::Tensor& part : parts) max = at::maximum(max, row_max(part));
  EXPECT_TRUE(at::equal(max, whole.amax(1)));
  at::Tensor sums = at::zeros({3, C}, whole.options());
  std::int64_t first = 0;
  for (std::size_t i = 0; i < parts.size(); first += widths[i++])
    sums = sums + exp_sums_(parts[i], max, targets, first, /*with_plain_sums=*/true);
  const at::Tensor counted = targets != -100, log_sum = sums[0].log();
  const at::Tensor loss =
      (log_sum - (1 - smoothing) * sums[1] - smoothing / static_cast<double>(V) * sums[2]) * counted;
  EXPECT_LE(test::difference(loss, truth.detach()), tolerance) << "loss";
  const at::Tensor d = dloss.to(device, dtype) * counted;
  first = 0;
  for (std::size_t i = 0; i < parts.size(); first += widths[i++])
    logit_grads_(parts[i], d / sums[0], targets, first, d * (1 - smoothing), d * (smoothing / static_cast<double>(V)));
  EXPECT_LE(test::difference(at::cat(parts, 1), truth_logits.grad()), tolerance) << "gradient";
}

TEST(CrossEntropyPieces, OfPartsEqualTheWhole) {
  for (const at::Device device : test::devices())
    for (const double smoothing : {0.0, 0.1}) {
      expect_parts_equal_whole(at::kDouble, device, {96}, smoothing, 1e-12);
      expect_parts_equal_whole(at::kDouble, device, {1, 37, 96, 7}, smoothing, 1e-12);
      expect_parts_equal_whole(at::kFloat, device, {1, 37, 96, 257}, smoothing, 1e-5);
    }
}

TEST(CrossEntropyPieces, SkipPlainSumsUnlessAsked) {
  const at::Tensor logits = test::normal({4, 9}, 1), targets = some_targets(4, 9);
  const at::Tensor sums = exp_sums_(logits.clone(), row_max(logits), targets, 0);
  EXPECT_TRUE(at::equal(sums[2], at::zeros({4}, at::kDouble)));
}

TEST(CrossEntropyPieces, GradientsWithoutEverywhere) {
  const at::Tensor exps = at::ones({2, 3}), half = at::full({2}, 0.5F);
  logit_grads_(exps, half, at::tensor({11, 99}, at::kLong), 10, at::full({2}, 2.F));
  EXPECT_TRUE(at::equal(exps, at::tensor({0.5F, -1.5F, 0.5F, 0.5F, 0.5F, 0.5F}).view({2, 3}))) << exps;
}

TEST(CrossEntropyPieces, AreTheSameWithAnyThreads) {
  const at::Tensor logits = test::normal({70, 1000}, 1).to(at::kFloat), targets = some_targets(70, 1000);
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    at::Tensor exps = logits.clone();
    const at::Tensor sums = exp_sums_(exps, row_max(logits), targets, 0, true);
    logit_grads_(exps, 1 / sums[0], targets, 0, at::ones({70}));
    return at::cat({exps.flatten(), sums.flatten()});
  };
  const int before = at::get_num_threads();
  EXPECT_TRUE(at::equal(run(1), run(2)));
  at::set_num_threads(before);
}

/// On a GPU: every dtype, odd widths and strides, against f64 on the CPU.
TEST(FusedLogits, EqualF64) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const std::int64_t columns : {1, 7, 8, 100, 509, 4097, 50257})
      for (const std::int64_t padding : {0, 1, 47}) {
        SCOPED_TRACE(text(dtype, " ", columns, " columns, ", padding, " of padding"));
        const std::int64_t rows = 5, first = 3;
        const at::Tensor wide = (at::randn({rows, columns + padding}, at::kDouble) * 8).to(dtype);
        const at::Tensor exact = wide.narrow(1, 0, columns).to(at::kDouble);
        const at::Tensor targets =
            at::tensor({first, first + columns - 1, first + columns / 2, std::int64_t{0}, first + columns}, at::kLong);
        const at::Tensor on_gpu = wide.cuda(), logits = on_gpu.narrow(1, 0, columns);
        const at::Tensor stats = logit_stats(logits, targets.cuda(), first).cpu().to(at::kDouble);
        const double bound = dtype == at::kDouble ? 1e-13 : 1e-5;
        const at::Tensor max = std::get<0>(exact.max(1));
        EXPECT_TRUE(stats[0].equal(max));
        EXPECT_TRUE(stats[1].allclose((exact - max.unsqueeze(1)).exp().sum(1), bound, 0));
        EXPECT_TRUE(stats[3].allclose(exact.sum(1), bound, bound * 1000));
        for (const std::int64_t row : {0, 1, 2})
          EXPECT_EQ(stats[2][row].item<double>(), exact[row][targets[row].item<std::int64_t>() - first].item<double>());
        EXPECT_EQ(stats[2][3].item<double>(), 0);
        EXPECT_EQ(stats[2][4].item<double>(), 0);

        const at::Tensor scale = at::rand({rows}, at::kDouble) / stats[1], less = at::rand({rows}, at::kDouble) * 1e-3,
                         on_target = at::rand({rows}, at::kDouble);
        at::Tensor wanted = (exact - max.unsqueeze(1)).exp() * scale.unsqueeze(1) - less.unsqueeze(1);
        for (const std::int64_t row : {0, 1, 2})
          wanted[row][targets[row].item<std::int64_t>() - first] -= on_target[row];
        const auto gpu = [&](const at::Tensor& x) {
          return x.to(dtype == at::kDouble ? at::kDouble : at::kFloat).cuda();
        };
        softmax_grads_(logits, gpu(max), gpu(scale), targets.cuda(), first, gpu(on_target), gpu(less), padding);
        const double rounding = dtype == at::kBFloat16 ? 1e-2
                                : dtype == at::kHalf   ? 1e-3
                                : dtype == at::kFloat  ? 1e-5
                                                       : 1e-13;
        EXPECT_TRUE(logits.cpu().to(at::kDouble).allclose(wanted, rounding, rounding * 1e-3));
        EXPECT_TRUE(on_gpu.narrow(1, columns, padding).eq(0).all().item<bool>());
      }
}

/// A row of minus infinities and one number, and one with NaN.
TEST(FusedLogits, Extremes) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  at::Tensor logits = at::full({3, 1000}, -std::numeric_limits<double>::infinity(), at::kFloat);
  logits[0][999] = 5;
  logits[1].fill_(3e38);
  logits[2].fill_(1);
  logits[2][500] = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor stats = logit_stats(logits.cuda(), at::zeros({3}, at::kLong).cuda(), 0).cpu();
  EXPECT_EQ(stats[0][0].item<float>(), 5);
  EXPECT_EQ(stats[1][0].item<float>(), 1);
  EXPECT_EQ(stats[1][1].item<float>(), 1000);
  EXPECT_TRUE(std::isnan(stats[1][2].item<float>()));
}

TEST(FusedLogits, TermsAreThoseOfTheFormula) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  constexpr std::int64_t C = 300, V = 77, ignored = -100;
  const at::Tensor logits = test::normal({C, V}, 1) * 3, targets = at::arange(C).remainder(V);
  targets.narrow(0, 5, 20).fill_(ignored);
  for (const double smoothing : {0.0, 0.1})
    for (const double z : {0.0, 1e-3}) {
      const at::Tensor leaf = logits.clone().requires_grad_();
      const at::Tensor lse = leaf.logsumexp(1), valid = targets.ne(ignored);
      const at::Tensor at_target = leaf.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1);
      const at::Tensor losses =
          (lse - (1 - smoothing) * at_target - smoothing * leaf.mean(1) + z * lse.square()) * valid;
      losses.sum().backward();
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
        const at::Tensor on_gpu = logits.to(dtype).cuda(), of = targets.cuda();
        const LossTerms terms =
            loss_terms(logit_stats(on_gpu, of, 0), of,
                       {.ignore_index = ignored, .label_smoothing = smoothing, .z_loss = z, .entries = V});
        softmax_grads_(on_gpu, terms.max, terms.scale, of, 0, terms.on_target, terms.everywhere, 0);
        const double bound = dtype == at::kFloat ? 2e-5 : 1e-12;
        EXPECT_LE((terms.losses.cpu() - losses.detach()).abs().max().item<double>(), bound);
        EXPECT_LE((on_gpu.cpu() - leaf.grad()).abs().max().item<double>(), bound);
      }
    }
}

}  // namespace
}  // namespace trireme::kernels
