#pragma once
// The loss over logits whose vocabulary is cut over tp. FullTensor logits never exist: neither gathered nor of all
// tokens.
#include "trireme/nn/layer.hpp"

namespace trireme {

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;      // as in PyTorch: this share of the target is spread over all entries
  double z_loss = 0;               // adds z_loss * log(sum exp logits)^2 to the loss of each token
  std::int64_t tile_tokens = 512;  // logits of so many tokens exist at a time
  /// Several microbatches may be between forward and backward (pipelines): backward computes the logits and both
  /// gradients again, so that no microbatch keeps a gradient of the weight's size.
  bool gradients_in_backward = false;
};

/// Sums, not means: they are divided once, by the number of tokens of the whole batch (who calls knows it).
struct LossSum {
  at::Tensor loss;   // scalar of the accumulate type, z-loss included; alike on all ranks of tp
  at::Tensor count;  // i64: tokens that are not ignored
};

// T tokens, D features, V entries, v = this rank's part of them
/// Head and loss in one: logits_Tv = x_TD @ W_vD^T, loss = sum over tokens of lse_V(logits) - logit of the target.
///   forward    per tile of tokens: max, then sums of exp and the target's logit: two small all_reduces over tp.
///              With grad, both gradients at once, for a loss gradient of one; the logits become theirs in place. A
///                batch
///              that is one tile, of no more tokens than features, keeps these and makes dW in backward:
///   backward   dx_TD = sum_r dlogits_Tv @ W_vD   all_reduce (x replicated) or reduce_scatter (x a token shard)
///              dW_vD = dlogits_Tv^T @ x_TD       local
/// `x` is [T, D], or this rank's tokens of it with sequence parallel; `targets_T` are of all tokens, alike on all
/// ranks. `entries`: the size of the vocabulary; rows of the weight beyond it take no part.
LossSum sharded_cross_entropy(const at::Tensor& x, const at::Tensor& weight_vD, const at::Tensor& targets_T,
                              std::int64_t entries, Parallel parallel, const CrossEntropyOptions& options = {});

/// This rank's entries of the logits, [T, v], without what pads them: for sample(). x as above.
at::Tensor sharded_logits(const at::Tensor& x, const at::Tensor& weight_vD, std::int64_t entries, Parallel parallel);

/// The logits of all entries on every rank: for tests and for looking at. x as above.
at::Tensor full_logits(const at::Tensor& x, const at::Tensor& weight_vD, std::int64_t entries, Parallel parallel);

}  // namespace trireme
