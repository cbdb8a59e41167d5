#pragma once
// Where the gradient of a parameter is collected, so that a layer's backward can write it there at once. Without a place,
// backward makes a tensor of the weight's size for each use of it; autograd adds them up and hands the sum to whoever
// collects gradients, who copies it and drops it.
#include <functional>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

namespace trireme::kernels {

/// Hangs on a parameter, in the slot that autograd has for what runs when a gradient is there
/// (torch::autograd::impl::set_post_acc_grad_hooks).
class GradientPlace : public torch::autograd::PostAccumulateGradHook {
 public:
  struct Memory {
    at::Tensor value;  // of the parameter's sizes, in the dtype that gradients are collected in
    bool is_empty;     // no part of this gradient was written yet: to be overwritten, else to be added to
  };
  /// Whoever asks writes a part of the gradient of this backward.
  virtual Memory to_write() = 0;
};

/// A part of the gradient of a leaf, in its place or else in a new tensor of its dtype: write(value, is_empty). What
/// comes back is for autograd: that tensor, or a gradient without entries, which takes no memory. So autograd still
/// knows when all parts are there.
at::Tensor write_gradient(const at::Tensor& parameter,
                          const std::function<void(const at::Tensor& value, bool is_empty)>& write);

/// dweight [N, K] = dy [T, N]^T x [T, K], by write_gradient().
at::Tensor write_weight_gradient(const at::Tensor& weight, const at::Tensor& dy, const at::Tensor& x);

}  // namespace trireme::kernels
