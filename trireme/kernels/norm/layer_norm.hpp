#pragma once
// LayerNorm, forward and backward fused into one pass each.
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// y = (x - mean) * rsqrt(var + eps) * weight + bias over the last dim, computed in fp32 (f64 for f64), rounded once.
///   backward   with h = (x - mean) rstd, g = dy * weight:  dx = rstd (g - mean(g) - h mean(g h)),
///              dweight = sum over rows of dy h,  dbias = sum over rows of dy
/// x [..., D], weight [D] and bias [D] are contiguous and of the same dtype. Saved for backward: x, weight, and mean
/// and rstd of each row.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);

}  // namespace trireme::kernels
