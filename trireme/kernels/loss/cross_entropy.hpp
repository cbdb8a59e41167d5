#pragma once
// Cross-entropy split into stages for vocabulary parallelism: if the columns of the logits (the vocabulary) are sharded
// over a group, each row needs its global maximum, then the sum of its exponentials. Each stage passes over the logits
// once, in place.
//
//   max = row_max(logits)                                    all-reduce MAX
//   sums = exp_sums_(logits, max, targets, first)            all-reduce SUM; logits now hold exp(logit - max)
//   loss = log(sums[0]) - sums[1]
//   logit_grads_(exps, dloss / sums[0], targets, first, dloss)
//
// C rows; V columns of this rank, the first of which has index `first` in the vocabulary. Each row of logits is
// contiguous, and may be followed by columns of padding (a narrow() of a wider matrix), which are left alone. Logits
// are f32 or f64: exponentials rounded to bf16 would spoil the gradient, so a bf16 model converts its logits to f32
// first (the buffer is a chunk of C rows, not the whole batch). cross_entropy() below accepts all dtypes.
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// The largest logit of each row, [C]. NaN is ignored here; it reappears in the sums.
at::Tensor row_max(const at::Tensor& logits);

/// Replaces the logits by exp(logit - max). Returns [3, C]: the sum of these; the target's logit - max, or 0 if the
/// target is not one of these columns; and the sum of logit - max, for label smoothing (zeros unless
/// `with_plain_sums`).
at::Tensor exp_sums_(const at::Tensor& logits, const at::Tensor& max, const at::Tensor& targets, std::int64_t first,
                     bool with_plain_sums = false);

/// Replaces the output of exp_sums_ by gradients: exps[c, v] * scale[c] - everywhere[c], and in the target's column
/// also - on_target[c]. `everywhere` may be undefined: zeros. The caller passes zeros for rows to ignore.
void logit_grads_(const at::Tensor& exps, const at::Tensor& scale, const at::Tensor& targets, std::int64_t first,
                  const at::Tensor& on_target, const at::Tensor& everywhere = {});

/// For one rank with the whole vocabulary: the losses [T] of logits [T, V], f32 (f64 for f64), 0 if the target is
/// `ignore_index`.
///   backward   dlogits = (softmax(logits) - onehot(target)) dloss, and zeros in ignored rows
/// Saved for backward: logits, targets, and two numbers per row. A target outside 0 ... V - 1 is a DataError (on CUDA a
/// device assertion).
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, std::int64_t ignore_index = -100);

}  // namespace trireme::kernels
