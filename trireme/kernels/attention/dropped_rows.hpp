#pragma once
// What dropped_attention.cpp does with the scores of a tile between its matrix products. On a GPU one pass each
// (dropped_rows.cu).
#include "trireme/kernels/attention/dropped_attention.hpp"

namespace trireme::kernels::detail {

// P pairs of sample and head, r queries, s keys
struct DroppedTile {
  const AttentionDropout& dropout;
  double scale;              // of the scores
  std::int64_t first_query;  // the position of the first one: without `sees` it attends to the keys up to itself
  at::Tensor rows_Pr;        // i64, of AttentionDropout::rows_bhs
  at::Tensor sees_Prs;       // bool, or undefined
};

/// softmax of the scores with dropped elements, the others divided by 1 - p. Writes the log-sum-exp of each row.
at::Tensor dropped_probabilities(const at::Tensor& scores_Prs, const DroppedTile& tile, at::ScalarType dtype,
                                 const at::Tensor& lse_Pr);

struct DroppedGradients {
  at::Tensor probs_Prs, dscores_Prs;
};
/// The same probabilities again, and the gradients of the scores. delta: the sum of dout * out over the head dim.
DroppedGradients dropped_gradients(const at::Tensor& scores_Prs, const at::Tensor& dprobs_Prs, const DroppedTile& tile,
                                   at::ScalarType dtype, const at::Tensor& lse_Pr, const at::Tensor& delta_Pr);

bool has_dropped_rows_on_cuda(const at::Tensor& scores_Prs, const DroppedTile& tile);
at::Tensor dropped_probabilities_on_cuda(const at::Tensor& scores_Prs, const DroppedTile& tile, at::ScalarType dtype,
                                         const at::Tensor& lse_Pr);
DroppedGradients dropped_gradients_on_cuda(const at::Tensor& scores_Prs, const at::Tensor& dprobs_Prs,
                                           const DroppedTile& tile, at::ScalarType dtype, const at::Tensor& lse_Pr,
                                           const at::Tensor& delta_Pr);

}  // namespace trireme::kernels::detail
