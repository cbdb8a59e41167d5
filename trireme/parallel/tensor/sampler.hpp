#pragma once
// Samples the next token from logits sharded over tp: the same token on every rank, and the same as from full logits on
// a single rank.
#include <cstdint>

#include "trireme/nn/layer.hpp"

namespace trireme {

struct SamplerOptions {
  double temperature = 1;  // 0: greedy, the largest logit; the first of equal ones
  std::int64_t top_k = 0;  // sample from the k largest only; 0: all
  double top_p = 1;        // nucleus: the fewest most probable entries whose probabilities sum to at least p
  std::uint64_t seed = 0;
};

/// ConfigError for a value out of range.
void check(const SamplerOptions& options);

// b sequences, V vocabulary entries, v = this rank's shard of them
/// logits_bv: this rank's shard, without padding columns (vocabulary_range); `draw`: the index of the draw in a
/// sequence, its position; `sequences_b`, i64: ids of the sequences. A draw is a function of (seed, sequence, position,
/// entry) only: sampling is the argmax of logit / temperature + Gumbel noise, so no rank needs the logits of the
/// others. Returns i64 [b].
at::Tensor sample(const at::Tensor& logits_bv, std::int64_t entries, Group& tp, const SamplerOptions& options,
                  const at::Tensor& sequences_b, std::int64_t draw);

/// The same in two parts: the noise of a draw, f64 [b, v] in host memory, and what enqueues kernels only. `noise_bv`,
/// on the device of the logits, is not used if the temperature is 0.
at::Tensor gumbel_noise(const at::Tensor& sequences_b, std::int64_t entries, Group& tp, const SamplerOptions& options,
                        std::int64_t draw);
at::Tensor sample(const at::Tensor& logits_bv, std::int64_t entries, Group& tp, const SamplerOptions& options,
                  const at::Tensor& noise_bv);

}  // namespace trireme
