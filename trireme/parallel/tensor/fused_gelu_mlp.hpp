#pragma once
// Both products of a GELU MLP as one function on a GPU, with biases, GELU and its derivative in their epilogues.
#include "trireme/parallel/tensor/parallel_matmul.hpp"

namespace trireme {

// T tokens, t = those between the layers; D features, f hidden features of this rank
struct GeluMlpWeights {
  at::Tensor up_fD, up_bias_f, down_Df;
  at::Tensor down_bias_D;  // undefined if it is added after the sum over tp
};

/// Whether x and the weights have fused products (kernels/matmul/fused_matmul.hpp).
bool has_fused_gelu_mlp(const at::Tensor& x_tD, const GeluMlpWeights& weights);

/// The part of this rank: gelu(x_TD @ up^T + b) @ down^T + b, GELU in the tanh form, x_TD gathered if it is a token
/// shard. As two parallel_matmul() with kernels::gelu between them. `rebuild`: how to recompute x, instead of storing
/// it; `rebuild_activation`: whether to recompute gelu(...) in backward. `residual_TD`, if defined, is added.
at::Tensor fused_gelu_mlp(const at::Tensor& x_tD, const GeluMlpWeights& weights, const at::Tensor& residual_TD,
                          Input input, Group& tp, const MaybeRebuild& rebuild, bool rebuild_activation);

}  // namespace trireme
