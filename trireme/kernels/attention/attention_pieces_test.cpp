#include "trireme/kernels/attention/attention_pieces.hpp"

#include <algorithm>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/kernels/attention/flash_attention.hpp"
#include "trireme/testing/kernels_helpers.hpp"

namespace trireme::kernels {
namespace {

struct PiecesInputs {
  at::Tensor q, k, v, dout;
  AttentionPieces pieces;
};

PiecesInputs inputs_of(const std::vector<std::pair<int, int>>& sizes, bool causal, std::int64_t left,
                       std::int64_t d = 64) {
  PiecesInputs in;
  in.pieces.causal = causal;
  in.pieces.left = left;
  std::int32_t queries = 0, keys = 0;
  for (const auto& [q, k] : sizes) {
    in.pieces.query_ends.push_back(queries += q);
    in.pieces.key_ends.push_back(keys += k);
    in.pieces.longest_queries = std::max<std::int64_t>(in.pieces.longest_queries, q);
    in.pieces.longest_keys = std::max<std::int64_t>(in.pieces.longest_keys, k);
  }
  in.q = at::randn({queries, 4, d}, at::kDouble);
  in.k = at::randn({keys, 2, d}, at::kDouble);
  in.v = at::randn({keys, 2, d}, at::kDouble);
  in.dout = at::randn({queries, 4, d}, at::kDouble);
  return in;
}

/// By masks over all rows.
struct PiecesByMask {
  at::Tensor out, lse, dq, dk, dv;
};
PiecesByMask by_mask(const PiecesInputs& in) {
  const at::Tensor sees = at::zeros({in.q.size(0), in.k.size(0)}, at::kBool);
  std::int64_t query = 0, key = 0;
  for (std::size_t i = 0; i < in.pieces.query_ends.size(); ++i) {
    const std::int64_t queries = in.pieces.query_ends[i] - query, keys = in.pieces.key_ends[i] - key;
    for (std::int64_t a = 0; a < queries; ++a)
      for (std::int64_t b = 0; b < keys; ++b) {
        const std::int64_t diagonal = a + keys - queries;
        if ((!in.pieces.causal || b <= diagonal) && (in.pieces.left < 0 || b >= diagonal - in.pieces.left))
          sees[query + a][key + b] = true;
      }
    query += queries;
    key += keys;
  }
  const auto leaf = [](const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); };
  const at::Tensor q = leaf(in.q), k = leaf(in.k), v = leaf(in.v);
  const auto heads = [](const at::Tensor& x) { return x.transpose(0, 1); };
  const at::Tensor scores = at::matmul(heads(q), heads(k.repeat_interleave(2, 1)).transpose(1, 2)) /
                            std::sqrt(static_cast<double>(q.size(2)));
  const at::Tensor masked = scores.masked_fill(sees.logical_not(), -std::numeric_limits<double>::infinity());
  const at::Tensor out = heads(at::matmul(masked.softmax(-1), heads(v.repeat_interleave(2, 1))));
  out.backward(in.dout);
  return {out.detach(), masked.detach().logsumexp(-1).transpose(0, 1), q.grad(), k.grad(), v.grad()};
}

void expect_pieces(const PiecesInputs& in, at::Device device, at::ScalarType dtype, double bound) {
  const PiecesByMask wanted = by_mask(in);
  AttentionPieces pieces = in.pieces;
  const auto bounds = [&](std::vector<std::int32_t> ends) {
    ends.insert(ends.begin(), 0);
    return at::tensor(ends, at::kInt).to(device);
  };
  pieces.query_bounds = bounds(pieces.query_ends);
  pieces.key_bounds = bounds(pieces.key_ends);
  const auto there = [&](const at::Tensor& x) { return x.to(device, dtype); };
  const at::Tensor q = there(in.q), k = there(in.k), v = there(in.v);
  const PartialAttention found = attention_of_pieces(q, k, v, pieces);
  ASSERT_EQ(found.lse.sizes(), wanted.lse.sizes());
  const double input = in.dout.norm().item<double>();
  const auto error = [input](const at::Tensor& a, const at::Tensor& b) {
    // Next to the size of what goes in: a query with one key has no gradient.
    return (a.cpu().to(at::kDouble) - b).norm().item<double>() / std::max(b.norm().item<double>(), input);
  };
  EXPECT_LT(error(found.out, wanted.out), bound);
  EXPECT_LT(error(found.lse, wanted.lse), bound);
  const AttentionGradients grads =
      attention_of_pieces_backward(there(in.dout), q, k, v, found.out.to(dtype), found.lse, pieces);
  EXPECT_LT(error(grads.dq, wanted.dq), bound);
  EXPECT_LT(error(grads.dk, wanted.dk), bound);
  EXPECT_LT(error(grads.dv, wanted.dv), bound);
}

const std::vector<std::vector<std::pair<int, int>>> kPieceSizes{
    {{5, 5}}, {{1, 1}, {7, 7}, {3, 3}}, {{64, 64}, {130, 130}, {1, 1}, {17, 17}}};
const std::vector<std::vector<std::pair<int, int>>> kCrossing{{{5, 9}}, {{1, 7}, {7, 1}}, {{40, 200}, {130, 3}}};

/// More queries than keys, and a window: the diagonals of the first queries lie before the first key.
const std::vector<std::pair<std::vector<std::pair<int, int>>, std::int64_t>> kMoreQueries{
    {{{16, 3}}, 2}, {{{16, 3}, {9, 5}}, 1}, {{{200, 70}, {5, 60}}, 40}};

TEST(AttentionPieces, AreThoseOfAMask) {
  for (const auto& sizes : kPieceSizes)
    for (const std::int64_t left : {-1, 0, 4})
      expect_pieces(inputs_of(sizes, true, left), at::kCPU, at::kDouble, 1e-12);
  for (const auto& sizes : kCrossing) expect_pieces(inputs_of(sizes, false, -1), at::kCPU, at::kDouble, 1e-12);
  for (const auto& [sizes, left] : kMoreQueries)
    expect_pieces(inputs_of(sizes, false, left), at::kCPU, at::kDouble, 1e-12);
  // Keys before the queries within a window of 6: what attention_rectangles() leaves of them.
  expect_pieces(inputs_of({{5, 5}}, false, 2), at::kCPU, at::kDouble, 1e-12);
}

TEST(AttentionPieces, AreThoseOfAMaskOnAGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const std::int64_t d : {16, 64, 128}) {
    if (!has_flash_attention(at::Device(at::kCUDA, 0), at::kBFloat16, d)) GTEST_SKIP() << "no flash attention";
    for (const auto& sizes : kPieceSizes)
      for (const std::int64_t left : {-1, 0, 4})
        expect_pieces(inputs_of(sizes, true, left, d), at::Device(at::kCUDA, 0), at::kBFloat16, 1e-2);
    for (const auto& sizes : kCrossing)
      expect_pieces(inputs_of(sizes, false, -1, d), at::Device(at::kCUDA, 0), at::kBFloat16, 1e-2);
    expect_pieces(inputs_of({{5, 5}, {100, 100}}, false, 100, d), at::Device(at::kCUDA, 0), at::kBFloat16, 1e-2);
    expect_pieces(inputs_of({{5, 5}}, false, 2, d), at::Device(at::kCUDA, 0), at::kBFloat16, 1e-2);
    for (const auto& [sizes, left] : kMoreQueries)
      expect_pieces(inputs_of(sizes, false, left, d), at::Device(at::kCUDA, 0), at::kBFloat16, 1e-2);
  }
}

}  // namespace
}  // namespace trireme::kernels
