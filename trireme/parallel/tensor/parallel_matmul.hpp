#pragma once
// The matmul of all tensor-parallel linear layers, with a custom backward that overlaps communication and computation.
#include "trireme/nn/parallel.hpp"
#include "trireme/nn/rebuild.hpp"

namespace trireme {

/// How x is distributed over the ranks of the group.
enum class Input {
  replicated,     // all tokens, all features
  token_shard,    // its own tokens, all features (sequence parallelism)
  feature_shard,  // all tokens, its own features
};

/// The distribution of activations between two sharded layers.
inline Input input_between(const Parallel& parallel) {
  return parallel.sequence_parallel ? Input::token_shard : Input::replicated;
}

// T tokens, t = T / tp; K inputs of this rank's shard of the weight, N outputs
/// y_TN = x W_NK^T + b_N, where x is x_TK, or for token_shard x_tK, which is gathered first.
///   forward    y_TN  = X_TK @ W_NK^T + b_N        token_shard: X_TK = all_gather(x_tK)
///   backward   dX_TK = dy_TN @ W_NK               replicated: all_reduce; token_shard: reduce_scatter to dx_tK
///              dW_NK = dy_TN^T @ X_TK             overlapped with that communication
///              db_N  = sum_T dy_TN
/// The gathered X of a token_shard is not stored for backward but gathered again, overlapped with dX.
/// `rebuild`: how to recompute x, instead of storing it. `bias` may be undefined. `residual_TN`, if defined, is added.
at::Tensor parallel_matmul(const at::Tensor& x, const at::Tensor& weight_NK, const at::Tensor& bias_N, Input input,
                           Group& tp, const MaybeRebuild& rebuild = {}, const at::Tensor& residual_TN = {});

}  // namespace trireme
