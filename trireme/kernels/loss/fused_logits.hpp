#pragma once
// The softmax of a row of logits and its gradient in two passes, on CUDA: one read for maximum and sum, one read and
// write that turns logits into gradients. The stages of cross_entropy.hpp take five passes and f32 logits; these take
// logits in any float dtype as the matrix product wrote them.
//
//   stats = logit_stats(logits, targets, first)          all-reduce MAX of stats[0], SUM of the others after rebased()
//   softmax_grads_(logits, max, scale, targets, first, on_target, everywhere)
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// Whether the functions below can be used: logits on a GPU, in a build with CUDA.
bool has_fused_logits(const at::Tensor& logits);

// C rows; V columns of this rank, `first` is the vocabulary index of the first. Rows are contiguous, and may be
// followed by columns of padding: logits is then a narrow() of a wider matrix.

/// [4, C] in f32 (f64 for f64): the largest logit of each row; the sum of exp(logit - that); the target's logit, or 0
/// if it is not one of these columns; and the sum of the logits.
at::Tensor logit_stats(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first);

/// The last three of logit_stats relative to another maximum, that of all ranks: [3, C], as those of exp_sums_().
at::Tensor rebased(const at::Tensor& stats, const at::Tensor& max, const at::Tensor& targets, std::int64_t first,
                   std::int64_t columns);

struct LossRule {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0, z_loss = 0;
  std::int64_t entries = 0;  // of the vocabulary
};
struct LossTerms {
  at::Tensor losses;                             // [C], 0 for ignored rows
  at::Tensor max, scale, on_target, everywhere;  // [C], for softmax_grads_(): those of the sum of the losses
};
/// Of the stats of all columns of a vocabulary on one rank, in one pass.
LossTerms loss_terms(const at::Tensor& stats, const at::Tensor& targets, const LossRule& rule);

/// Replaces logits by exp(logit - max[c]) * scale[c] - everywhere[c], and in the target's column also - on_target[c],
/// rounded once. The `padding` columns that follow become zero.
void softmax_grads_(const at::Tensor& logits, const at::Tensor& max, const at::Tensor& scale, const at::Tensor& targets,
                    std::int64_t first, const at::Tensor& on_target, const at::Tensor& everywhere,
                    std::int64_t padding);

}  // namespace trireme::kernels
