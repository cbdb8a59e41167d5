#pragma once
// The next token from logits whose vocabulary is cut over tp: the same token on every rank, and the same as from whole
// logits on one.
#include <cstdint>

#include "trireme/nn/layer.hpp"

namespace trireme {

struct SamplerOptions {
  double temperature = 1;  // 0: greedy, the largest logit; of equal ones the first
  std::int64_t top_k = 0;  // only the k largest take part; 0: all
  double top_p = 1;        // only the largest whose probabilities, added up in order, first reach p
  std::uint64_t seed = 0;
};

// b sequences, V entries, v = this rank's part of them
/// logits_bv: this rank's entries, without padding columns (vocabulary_range); `draw` numbers the draws of a sequence:
/// its position; `sequences_b`, i64: numbers of the sequences. One draw is a function of (seed, sequence, position,
/// entry) alone: sampling is the argmax of logit / temperature + Gumbel noise, so that no rank needs the others' logits
/// for it. Returns i64 [b].
at::Tensor sample(const at::Tensor& logits_bv, std::int64_t entries, Group& tp, const SamplerOptions& options,
                  const at::Tensor& sequences_b, std::int64_t draw);

}  // namespace trireme
