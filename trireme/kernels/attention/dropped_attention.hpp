#pragma once
// Causal attention whose probabilities are dropped: each has its own decision, a function of (sample, head, query, key)
// as in dropout.hpp. Neither the probabilities nor the decisions of all heads are in memory at once: they are computed
// in tiles, in forward and again in backward.
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/kernels/dropout/dropout.hpp"

namespace trireme::kernels {

struct AttentionDropout {
  double p = 0;
  DropoutKey key{};
  /// i64 [b, heads, s]: the row of each query in the matrix of all decisions, of `row_width` keys.
  at::Tensor rows_bhs;
  std::int64_t row_width = 0;
  std::int64_t tile_elements = std::int64_t{8} << 20;  // scores at once: 32 MiB of f32, in the cache of a large GPU
};

/// As attention() of q [b, heads, s, d], k and v [b, kv_heads, s, d], with dropped probabilities; `sees` is [s, s] or
/// [b, 1, s, s], undefined: causal. Probabilities are rounded to the dtype of v; sums are at least f32. Saved for
/// backward: q, k, v, the result and one number per head and token.
at::Tensor dropped_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sees,
                             const AttentionDropout& dropout);

}  // namespace trireme::kernels
