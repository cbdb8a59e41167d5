#pragma once
// The one matmul of all cut linear layers, with its backward written out so that communication overlaps the maths.
#include "trireme/nn/parallel.hpp"
#include "trireme/nn/rebuild.hpp"

namespace trireme {

/// What x is on a rank of the group.
enum class Input {
  replicated,     // all tokens, all features
  token_shard,    // its own tokens, all features (sequence parallel)
  feature_shard,  // all tokens, its own features
};

/// What x is that comes from between two cut layers.
inline Input input_between(const Parallel& parallel) {
  return parallel.sequence_parallel ? Input::token_shard : Input::replicated;
}

// T tokens, t = T / tp; K inputs of the weight that this rank keeps, N outputs
/// y_TN = x W_NK^T + b_N, where x is x_TK, or x_tK of token_shard, which is gathered first.
///   forward    y_TN  = X_TK @ W_NK^T + b_N        token_shard: X_TK = all_gather(x_tK)
///   backward   dX_TK = dy_TN @ W_NK               replicated: all_reduce; token_shard: reduce_scatter to dx_tK
///              dW_NK = dy_TN^T @ X_TK             while that is under way
///              db_N  = sum_T dy_TN
/// A token_shard's X is not kept for backward but gathered again, while dX is computed.
/// `rebuild`: how to make x again, instead of keeping it. `bias` may be undefined.
at::Tensor parallel_matmul(const at::Tensor& x, const at::Tensor& weight_NK, const at::Tensor& bias_N, Input input,
                           Group& tp, const MaybeRebuild& rebuild = {});

}  // namespace trireme
