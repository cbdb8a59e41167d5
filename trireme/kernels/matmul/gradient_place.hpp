#pragma once
// The accumulation buffer of a parameter's gradient, so that a layer's backward can write to it directly. Without it,
// backward allocates a tensor of the weight's size for each use; autograd adds them up and passes the sum to the
// gradient accumulator, which copies it and drops it.
#include <functional>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

namespace trireme::kernels {

/// Attached to a parameter, in autograd's slot for post-accumulate hooks
/// (torch::autograd::impl::set_post_acc_grad_hooks).
class GradientPlace : public torch::autograd::PostAccumulateGradHook {
 public:
  struct Memory {
    at::Tensor value;  // shape of the parameter, dtype of gradient accumulation
    bool is_empty;     // nothing written yet in this backward: overwrite, else add
  };
  /// The caller then writes a part of the gradient of this backward.
  virtual Memory to_write() = 0;

  using Write = std::function<void(const at::Tensor& value, bool is_empty)>;
  /// Whether weight gradients are computed later, apart from the gradients of inputs (zero-bubble pipeline schedules):
  /// then it keeps `write` and calls it when the gradient is due. Else it does nothing and returns false.
  /// `reads_parameter`: `write` needs the value of the parameter, which may be sharded by then.
  virtual bool defer(const Write& write, bool reads_parameter) = 0;
};

/// Writes a part of the gradient of a leaf, to its place or else to a new tensor of its dtype: write(value, is_empty).
/// The return value is for autograd: that tensor, or an empty sparse gradient, which takes no memory. So autograd still
/// knows when all parts have been written or deferred. `write` owns what it uses: it may run after backward.
at::Tensor write_gradient(const at::Tensor& parameter, const GradientPlace::Write& write, bool reads_parameter = false);

/// value [N, K] = (`add`: +=) dy [T, N]^T x [T, K], by the fastest product for these operands.
void weight_product_out(const at::Tensor& value, const at::Tensor& dy, const at::Tensor& x, bool add);

/// dweight [N, K] = dy [T, N]^T x [T, K], by write_gradient().
at::Tensor write_weight_gradient(const at::Tensor& weight, const at::Tensor& dy, const at::Tensor& x);
/// dbias [N] = the sum of the rows of dy [T, N], by write_gradient().
at::Tensor write_bias_gradient(const at::Tensor& bias, const at::Tensor& dy);

}  // namespace trireme::kernels
