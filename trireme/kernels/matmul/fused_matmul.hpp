#pragma once
// Matrix products on a GPU that also add a bias or a residual, apply GELU or its derivative: in the epilogue of the
// product (cuBLASLt), instead of in another pass over its result. The gradients of biases are not among them: cuBLASLt
// computes them by a kernel of its own, which is slower than sum_rows_out().
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// Whether the functions below can be used with these operands: bf16 or f16 on a GPU, rows of a multiple of 16 bytes,
/// not switched off.
bool has_fused_matmul(const at::Tensor& a, const at::Tensor& b);

/// The same for linear_with_residual(), whose result has rows of N elements.
bool has_fused_linear(const at::Tensor& x, const at::Tensor& weight);

/// Switches them off (or on again) for the whole process, to compare them with ATen's products. Default: on.
void allow_fused_matmul(bool allowed);

/// Measures the algorithms of all products that have run on this device since the last call, on random operands, and
/// uses the fastest from now on; cuBLASLt's own choice may be 10 % slower. Returns how many products those were.
/// Results differ in rounding from before, and from those of another run that chose differently.
int tune_fused_matmul(at::Device device);

// T tokens; K inputs and N outputs of a layer. Operands are matrices of one dtype whose rows are contiguous.

/// y [T, N] = x [T, K] weight [N, K]^T + bias [N] + residual [T, N], each of which may be undefined; rounded once.
at::Tensor linear_with_residual(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                const at::Tensor& residual);

/// out [m, n] = a [m, k] b [k, n]
void product_nn_out(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

struct LinearGelu {
  at::Tensor y;       // gelu(before), in the tanh form
  at::Tensor before;  // x weight^T + bias, for backward
};
LinearGelu linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// [T, K] = (dy [T, N] weight [N, K]) * gelu'(before [T, K]), of the layer after GELU.
at::Tensor gelu_gradient(const at::Tensor& dy, const at::Tensor& weight, const at::Tensor& before);

/// out [N, K] (fp32, or of the dtype of the operands) = (`add`: +=) dy [T, N]^T x [T, K].
void weight_gradient_out(const at::Tensor& out, const at::Tensor& dy, const at::Tensor& x, bool add);

}  // namespace trireme::kernels
