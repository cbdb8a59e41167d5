#pragma once
// A norm together with the residual stream before and behind it, so that a GPU passes over the stream once in forward
// and once in backward.
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

struct ResidualNorm {
  at::Tensor sum;  // x + residual: the stream that goes on
  at::Tensor y;    // the norm of it
};

/// sum = x + residual (x, if that is undefined), y = layer_norm(sum, weight, bias), or rms_norm(sum, weight) if bias
/// is undefined. Saved for backward: sum, the weight, and one or two numbers per row.
ResidualNorm residual_norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                           const at::Tensor& bias, double eps);

}  // namespace trireme::kernels
