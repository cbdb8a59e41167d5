#pragma once
// Matrix products that are fast for every dtype on every machine, and the linear layer based on them.
//
// A CPU without bf16 instructions multiplies bf16 one number at a time, hundreds of times slower than fp32. There, bf16
// and f16 operands are multiplied in fp32, one block of rows after the other, and the result is rounded once.
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// Whether libtorch has native instructions for matrix products of this dtype on this device.
bool multiplies_natively(at::ScalarType dtype, at::Device device);

// Operands of the same dtype and device, any strides; the result has their dtype. `t` means transposed. Gradients, if
// required, are those of at::mm: layers implement their own backward with these functions.

/// [m, n] = a [m, k] b [n, k]^T: a linear layer's forward.
at::Tensor matmul_nt(const at::Tensor& a, const at::Tensor& b);
/// [m, n] = a [m, k] b [k, n]: the gradient of its input.
at::Tensor matmul_nn(const at::Tensor& a, const at::Tensor& b);
/// The same into out [m, n], contiguous, of the same dtype.
void matmul_nn_out(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
/// [m, n] = a [k, m]^T b [k, n]: the gradient of its weight.
at::Tensor matmul_tn(const at::Tensor& a, const at::Tensor& b);
/// out [m, n] = (+=) a [k, m]^T b [k, n], contiguous, of any supported dtype. If it is fp32 while a and b are bf16 or
/// f16, the product is not rounded in between.
void matmul_tn_out(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
void add_matmul_tn_(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

/// out [n], contiguous, of any supported dtype = (`add`: +=) the sum of the rows of x [m, n]: a bias's gradient.
/// Bitwise equal for any number of threads.
void sum_rows_out(const at::Tensor& out, const at::Tensor& x, bool add);

/// y [T, N] = x [T, K] weight [N, K]^T + bias [N], which may be undefined.
///   backward   dx = dy weight,  dweight = dy^T x,  dbias = sum over rows of dy
/// Only the required gradients are computed; those of weight and bias are written to their places (gradient_place.hpp).
/// Saved for backward: x (if weight requires a gradient), weight and bias.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace trireme::kernels
