#pragma once
// Cross-entropy in pieces that ranks can talk between: logits whose columns (the vocabulary) are cut over a group need
// the largest of a row, then the sum of its exponentials. Each piece goes over the logits once, and in place.
//
//   max = row_max(logits)                                    all-reduce MAX
//   sums = exp_sums_(logits, max, targets, first)            all-reduce SUM; logits now hold exp(logit - max)
//   loss = log(sums[0]) - sums[1]
//   logit_grads_(exps, dloss / sums[0], targets, first, dloss)
//
// C rows; V columns of this rank, of which the first is number `first` of the vocabulary. Logits are contiguous and of
// f32 or f64: exponentials rounded to bf16 would spoil the gradient, so a model in bf16 widens its logits first (the
// buffer is a chunk of C rows, not the whole batch). cross_entropy() below takes all dtypes.
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// The largest logit of each row, [C]. NaN is passed over here; it comes back in the sums.
at::Tensor row_max(const at::Tensor& logits);

/// Turns the logits into exp(logit - max). Returns [3, C]: the sum of these; the target's logit - max, or 0 where the
/// target is not one of these columns; and the sum of logit - max, for label smoothing (zeros unless
/// `with_plain_sums`).
at::Tensor exp_sums_(const at::Tensor& logits, const at::Tensor& max, const at::Tensor& targets, std::int64_t first,
                     bool with_plain_sums = false);

/// Turns what exp_sums_ left into gradients: exps[c, v] * scale[c] - everywhere[c], and in the target's column also
/// - on_target[c]. `everywhere` may be undefined: zeros. The caller gives zeros for rows that are to be ignored.
void logit_grads_(const at::Tensor& exps, const at::Tensor& scale, const at::Tensor& targets, std::int64_t first,
                  const at::Tensor& on_target, const at::Tensor& everywhere = {});

/// For one rank that has the whole vocabulary: the losses [T] of logits [T, V], f32 (f64 for f64), 0 where the target
/// is `ignore_index`.
///   backward   dlogits = (softmax(logits) - onehot(target)) dloss, and zeros in ignored rows
/// Kept for backward: logits, targets, and two numbers a row. A target outside of 0 ... V - 1 is a DataError (on CUDA
/// an assertion of the device).
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, std::int64_t ignore_index = -100);

}  // namespace trireme::kernels
