#pragma once
// Cross-entropy loss fused with the LM head, with the vocabulary sharded over tp. The full logits are never
// materialized: neither gathered over tp nor for all tokens at once.
#include "trireme/nn/layer.hpp"

namespace trireme {

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;      // as in PyTorch: this fraction of the target is spread over all vocabulary entries
  double softcap = 0;              // logits become softcap tanh(logits / softcap); 0: they stay
  double z_loss = 0;               // adds z_loss * log(sum exp logits)^2 to the loss of each token
  std::int64_t tile_tokens = 512;  // logits are computed for this many tokens at a time
  /// For pipelines, where several microbatches are between forward and backward: backward recomputes the logits and
  /// both gradients, so that no microbatch stores a gradient of the weight's size.
  bool gradients_in_backward = false;
};

/// Sums, not means: the caller divides once, by the number of tokens of the global batch.
struct LossSum {
  at::Tensor loss;   // scalar of the accumulation dtype, including z-loss; the same on all ranks of tp
  at::Tensor count;  // i64: tokens that are not ignored
};

// T tokens, D features, V vocabulary entries, v = this rank's shard of them with padding (Note [Vocabulary rows])
/// Head and loss in one: logits_Tv = x_TD @ W_vD^T, loss = sum over tokens of lse_V(logits) - logit of the target.
///   forward    per tile of tokens: max, then sums of exp and the target's logit: two small all_reduces over tp. With
///              grad enabled, both gradients are computed at once, for a loss gradient of 1; dlogits overwrite the
///              logits in place. A batch of a single tile, with no more tokens than features, stores dlogits and
///              computes dW in backward:
///   backward   dx_TD = sum_r dlogits_Tv @ W_vD   all_reduce (x replicated) or reduce_scatter (x a token shard)
///              dW_vD = dlogits_Tv^T @ x_TD       local
/// `x` is [T, D], or this rank's tokens of it with sequence parallelism; `targets_T` are for all tokens, the same on
/// all ranks. `entries`: the vocabulary size; weight rows beyond this rank's vocabulary_range are padding: they take no
/// part in the loss, and their gradient is zero.
LossSum sharded_cross_entropy(const at::Tensor& x, const at::Tensor& weight_vD, const at::Tensor& targets_T,
                              std::int64_t entries, Parallel parallel, const CrossEntropyOptions& options = {});

/// softcap tanh(logits / softcap), or the logits themselves for 0.
at::Tensor softcapped(const at::Tensor& logits, double softcap);

/// This rank's shard of the logits, [T, vocabulary_range], without padding: for sample(). x as above.
at::Tensor sharded_logits(const at::Tensor& x, const at::Tensor& weight_vD, std::int64_t entries, Parallel parallel);

/// The full logits on every rank: for tests and inspection. x as above.
at::Tensor full_logits(const at::Tensor& x, const at::Tensor& weight_vD, std::int64_t entries, Parallel parallel);

}  // namespace trireme
