#pragma once
// Ulysses: ranks that each have some tokens of every sample exchange them for some heads of all tokens.
#include <ATen/core/Tensor.h>

#include "trireme/comm/group.hpp"

namespace trireme {

/// Of an attention layer on one rank.
struct HeadCounts {
  std::int64_t queries = 0, keys = 0;
  bool operator==(const HeadCounts&) const = default;
};

/// The heads of each of `ranks` ranks that share these. KV heads that several ranks need are there more than once.
HeadCounts heads_per_rank(const HeadCounts& heads, int ranks);

// b samples, s = this rank's tokens of a sample, n ranks, d head dim; both are differentiable
/// From all heads (queries, keys, values) of the own tokens, [b, s, queries + 2 keys, d], to those of this rank's
/// heads_per_rank() for all tokens, [b, n s, ..., d]. One all_to_all.
at::Tensor exchange_tokens_for_heads(const at::Tensor& heads_bsnd, const HeadCounts& heads, Group& group);
/// From the results of this rank's heads, [b, n s, queries / n, d], to those of all heads for the own tokens.
at::Tensor exchange_heads_for_tokens(const at::Tensor& out_bsnd, Group& group);

}  // namespace trireme
