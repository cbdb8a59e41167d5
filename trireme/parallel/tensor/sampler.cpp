#include "trireme/parallel/tensor/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/parallel/tensor/embedding.hpp"

namespace trireme {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// Concatenates the columns of all ranks in rank order: [b, n * columns].
at::Tensor side_by_side(const at::Tensor& x_bc, Group& tp) {
  const at::Tensor all = tp.all_gather(x_bc.contiguous()).wait();  // [n * b, columns]
  return all.view({tp.size(), x_bc.size(0), x_bc.size(1)}).transpose(0, 1).reshape({x_bc.size(0), -1});
}

/// The entry with the largest score in each row, the first of equal ones; the same on all ranks.
at::Tensor argmax_over(const at::Tensor& scores_bv, std::int64_t first_entry, Group& tp) {
  const std::int64_t rows = scores_bv.size(0);
  const auto f64 = scores_bv.options();
  // A rank without entries takes part with a score of -inf.
  at::Tensor best_b2 = at::full({rows, 2}, kNever, f64);
  if (scores_bv.size(1) > 0) {
    const at::Tensor first_b1 = scores_bv.argmax(1, /*keepdim=*/true);  // the first of equal ones
    best_b2.narrow(1, 0, 1).copy_(scores_bv.gather(1, first_b1));
    best_b2.narrow(1, 1, 1).copy_(first_b1 + first_entry);
  }
  const at::Tensor all = side_by_side(best_b2, tp).view({rows, tp.size(), 2});
  const at::Tensor values_bn = all.select(2, 0), entries_bn = all.select(2, 1);
  const at::Tensor wins = values_bn.eq(values_bn.amax(1, /*keepdim=*/true));
  // Ranks hold entries in ascending order, so the first winner has the smallest.
  const at::Tensor who_b1 = wins.to(at::kByte).argmax(1, /*keepdim=*/true);
  return entries_bn.gather(1, who_b1).squeeze(1).to(at::kLong);
}

/// The k-th largest score of each row, [b, 1], from the k largest of every rank.
at::Tensor kth_largest(const at::Tensor& scores_bv, std::int64_t k, Group& tp) {
  at::Tensor best_bk = at::full({scores_bv.size(0), k}, kNever, scores_bv.options());
  if (const std::int64_t own = std::min(k, scores_bv.size(1)); own > 0)
    best_bk.narrow(1, 0, own).copy_(std::get<0>(scores_bv.topk(own, 1)));
  return std::get<0>(side_by_side(best_bk, tp).topk(k, 1)).narrow(1, k - 1, 1);
}

/// The smallest score within the nucleus, [b, 1]. Needs the sorted scores of all entries: one row per sequence is
/// gathered.
at::Tensor nucleus_floor(const at::Tensor& scores_bv, std::int64_t entries, double p, Group& tp) {
  const std::int64_t columns = (entries + tp.size() - 1) / tp.size();
  at::Tensor padded = at::full({scores_bv.size(0), columns}, kNever, scores_bv.options());
  padded.narrow(1, 0, scores_bv.size(1)).copy_(scores_bv);
  const at::Tensor sorted_bV = std::get<0>(side_by_side(padded, tp).sort(1, /*descending=*/true));
  const at::Tensor probability_bV = sorted_bV.softmax(1);
  // An entry is included if the sum before it is below p; the first always is.
  const at::Tensor before_bV = probability_bV.cumsum(1) - probability_bV;
  return sorted_bV.masked_fill(before_bV.ge(p), std::numeric_limits<double>::infinity()).amin(1, /*keepdim=*/true);
}

}  // namespace

void check(const SamplerOptions& options) {
  require<ConfigError>(options.temperature >= 0, "temperature = ", options.temperature, ": must not be negative");
  require<ConfigError>(options.top_k >= 0, "top_k = ", options.top_k, ": must not be negative (0: all)");
  require<ConfigError>(options.top_p > 0 && options.top_p <= 1, "top_p = ", options.top_p,
                       ": must be above 0 and at most 1");
}

at::Tensor gumbel_noise(const at::Tensor& sequences_b, std::int64_t entries, Group& tp, const SamplerOptions& options,
                        std::int64_t draw) {
  const Range own = vocabulary_range(entries, tp);
  const at::Tensor sequences = sequences_b.cpu();
  at::Tensor noise = at::empty({sequences.size(0), own.size()}, at::kDouble);
  auto out = noise.accessor<double, 2>();
  for (std::int64_t b = 0; b < noise.size(0); ++b) {
    const RandomStream stream(options.seed, text("sample sequence ", sequences[b].item<std::int64_t>()));
    for (std::int64_t v = 0; v < noise.size(1); ++v) {
      // 1 - u is in (0, 1]. For u = 0 the noise is infinite, and that entry wins.
      const double u = stream.uniform(static_cast<std::uint64_t>(draw * entries + own.begin + v));
      out[b][v] = -std::log(-std::log1p(-u));
    }
  }
  return noise;
}

at::Tensor sample(const at::Tensor& logits_bv, std::int64_t entries, Group& tp, const SamplerOptions& options,
                  const at::Tensor& sequences_b, std::int64_t draw) {
  at::Tensor noise;
  if (options.temperature != 0) noise = gumbel_noise(sequences_b, entries, tp, options, draw).to(logits_bv.device());
  return sample(logits_bv, entries, tp, options, noise);
}

at::Tensor sample(const at::Tensor& logits_bv, std::int64_t entries, Group& tp, const SamplerOptions& options,
                  const at::Tensor& noise_bv) {
  const Range own = vocabulary_range(entries, tp);
  require(logits_bv.dim() == 2 && logits_bv.size(1) == own.size(), "sample on group ", tp.str(), ": logits of sizes ",
          logits_bv.sizes(), ": must be [sequences, ", own.size(), "], this rank's entries");
  check(options);
  at::Tensor scores_bv = logits_bv.detach().to(at::kDouble);
  if (options.temperature == 0) return argmax_over(scores_bv, own.begin, tp);
  scores_bv = scores_bv / options.temperature;
  if (options.top_k > 0 && options.top_k < entries)
    scores_bv = scores_bv.masked_fill(scores_bv.lt(kth_largest(scores_bv, options.top_k, tp)), kNever);
  if (options.top_p < 1)
    scores_bv = scores_bv.masked_fill(scores_bv.lt(nucleus_floor(scores_bv, entries, options.top_p, tp)), kNever);
  return argmax_over(scores_bv + noise_bv, own.begin, tp);
}

}  // namespace trireme
