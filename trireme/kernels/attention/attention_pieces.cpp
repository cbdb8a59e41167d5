#include "trireme/kernels/attention/attention_pieces.hpp"

#include <optional>

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/rows/dtype.hpp"

namespace trireme::kernels {
namespace {

/// Without fused kernels of variable lengths: piece by piece.
struct Piece {
  std::int64_t query, queries, key, keys;  // first row and number of rows
};

template <class Visit>
void for_each_piece(const AttentionPieces& pieces, Visit visit) {
  std::int64_t query = 0, key = 0;
  for (std::size_t i = 0; i < pieces.query_ends.size(); ++i) {
    visit(Piece{query, pieces.query_ends[i] - query, key, pieces.key_ends[i] - key});
    query = pieces.query_ends[i];
    key = pieces.key_ends[i];
  }
}

BlockScores mask_of(const Piece& piece, const AttentionPieces& pieces, at::Device device) {
  if (pieces.left < 0 && (!pieces.causal || piece.queries == piece.keys)) return {.causal = pieces.causal};
  const std::int64_t diagonal = piece.keys - piece.queries;
  at::Tensor sees = at::ones({piece.queries, piece.keys}, at::TensorOptions(at::kBool).device(device));
  if (pieces.causal) sees = sees.tril_(diagonal);
  if (pieces.left >= 0) sees = sees.triu_(diagonal - pieces.left);
  return {.sees = sees.view({1, 1, piece.queries, piece.keys})};
}

/// Rows [n, heads, d] as one sample [1, heads, n, d].
at::Tensor as_sample(const at::Tensor& x, std::int64_t first, std::int64_t count) {
  return x.narrow(0, first, count).transpose(0, 1).unsqueeze(0);
}

at::Tensor as_rows(const at::Tensor& sample) { return sample.squeeze(0).transpose(0, 1); }

/// Keys to the right of a query's diagonal, for libtorch's kernels: -1: all, or what is_causal says.
std::int64_t right_of(const AttentionPieces& pieces) { return pieces.causal && pieces.left >= 0 ? 0 : -1; }

// Note [A window without an end to the right]
// With a window on the left only, libtorch's kernels take the largest number of keys of a piece as the window on the
// right, and no larger one can be given. A query whose diagonal lies before the first key, which a piece with more
// queries than keys has, would not see all keys up to there, or none. So the largest number that they are told includes
// the queries; it is a bound, and no memory depends on it.
std::int64_t most_keys(const AttentionPieces& pieces) {
  const bool open_to_the_right = !pieces.causal && pieces.left >= 0;
  return pieces.longest_keys + (open_to_the_right ? pieces.longest_queries : 0);
}

/// libtorch's kernels give and take [heads, T].
PartialAttention flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionPieces& pieces) {
  const auto result = at::_flash_attention_forward(
      q, k, v, pieces.query_bounds, pieces.key_bounds, pieces.longest_queries, most_keys(pieces),
      /*dropout_p=*/0.0, pieces.causal, /*return_debug_mask=*/false, std::nullopt, pieces.left, right_of(pieces));
  return {std::get<0>(result), std::get<1>(result).transpose(0, 1)};
}

AttentionGradients flash_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& out, const at::Tensor& lse, const AttentionPieces& pieces) {
  const at::Tensor no_dropout = at::zeros({2}, q.options().dtype(at::kUInt64));
  auto [dq, dk, dv] =
      at::_flash_attention_backward(dout, q, k, v, out, lse.transpose(0, 1).contiguous(), pieces.query_bounds,
                                    pieces.key_bounds, pieces.longest_queries, most_keys(pieces), /*dropout_p=*/0.0,
                                    pieces.causal, no_dropout, no_dropout, std::nullopt, pieces.left, right_of(pieces));
  return {dq, dk, dv};
}

}  // namespace

PartialAttention attention_of_pieces(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const AttentionPieces& pieces) {
  require(!pieces.query_ends.empty() && pieces.query_ends.back() == q.size(0) && pieces.key_ends.back() == k.size(0) &&
              k.sizes() == v.sizes(),
          "attention of pieces: q of sizes ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(), ", ",
          pieces.query_ends.size(), " pieces");
  if (q.is_cuda()) return flash(q, k, v, pieces);
  const auto wide = q.options().dtype(wide_dtype(q.scalar_type())).requires_grad(false);
  PartialAttention all{at::empty(q.sizes(), wide), at::empty({q.size(0), q.size(1)}, wide)};
  for_each_piece(pieces, [&](const Piece& p) {
    const PartialAttention one = attention_block(as_sample(q, p.query, p.queries), as_sample(k, p.key, p.keys),
                                                 as_sample(v, p.key, p.keys), mask_of(p, pieces, q.device()));
    all.out.narrow(0, p.query, p.queries).copy_(as_rows(one.out));
    all.lse.narrow(0, p.query, p.queries).copy_(as_rows(one.lse));
  });
  return all;
}

AttentionGradients attention_of_pieces_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse,
                                                const AttentionPieces& pieces) {
  if (q.is_cuda()) return flash_backward(dout, q, k, v, out, lse, pieces);
  const auto wide = q.options().dtype(wide_dtype(q.scalar_type())).requires_grad(false);
  AttentionGradients all{at::empty(q.sizes(), wide), at::empty(k.sizes(), wide), at::empty(v.sizes(), wide)};
  for_each_piece(pieces, [&](const Piece& p) {
    const auto of_queries = [&](const at::Tensor& x) { return as_sample(x, p.query, p.queries); };
    const auto of_keys = [&](const at::Tensor& x) { return as_sample(x, p.key, p.keys); };
    const AttentionGradients one = attention_block_backward(
        of_queries(dout), of_queries(q), of_keys(k), of_keys(v), of_queries(out),
        lse.narrow(0, p.query, p.queries).transpose(0, 1).unsqueeze(0).contiguous(), mask_of(p, pieces, q.device()));
    all.dq.narrow(0, p.query, p.queries).copy_(as_rows(one.dq));
    all.dk.narrow(0, p.key, p.keys).copy_(as_rows(one.dk));
    all.dv.narrow(0, p.key, p.keys).copy_(as_rows(one.dv));
  });
  return all;
}

}  // namespace trireme::kernels
