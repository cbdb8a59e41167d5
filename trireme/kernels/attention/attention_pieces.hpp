#pragma once
// Attention of pieces: each a run of queries and the run of keys that they attend to, of any lengths, in one launch.
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/kernels/attention/attention_block.hpp"

namespace trireme::kernels {

/// Pieces one after the other, as rows: T of queries and U of keys in all.
struct AttentionPieces {
  std::vector<std::int32_t> query_ends, key_ends;  // of each piece, as numbers of rows up to there
  at::Tensor query_bounds = {}, key_bounds = {};   // on a GPU: i32, 0 and those ends
  std::int64_t longest_queries = 0, longest_keys = 0;
  bool causal = false;     // a query attends to keys up to its diagonal, where the last query's is at the last key
  std::int64_t left = -1;  // and to this many before the diagonal; -1: to all
};

/// q [T, heads, d], k and v [U, kv_heads, d]. On a GPU: if has_flash_attention(). Returns out [T, heads, d], in 16 bits
/// on a GPU, and lse [T, heads] in f32 or f64.
PartialAttention attention_of_pieces(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const AttentionPieces& pieces);

/// The part of the gradients that goes through the pieces. `out` [T, heads, d] in the dtype of q and `lse` [T, heads]
/// are the results over all keys, of these queries.
AttentionGradients attention_of_pieces_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse,
                                                const AttentionPieces& pieces);

}  // namespace trireme::kernels
