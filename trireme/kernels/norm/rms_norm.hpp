#pragma once
// RMSNorm, forward and backward fused into one pass each.
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// y = x * rsqrt(mean(x^2) + eps) * weight over the last dim, computed in fp32 (f64 for f64) and rounded once.
///   backward   with h = x * rstd, g = dy * weight:  dx = rstd (g - h mean(g h)),  dweight = sum over rows of dy h
/// x [..., D] and weight [D] are contiguous and of the same dtype. Saved for backward: x, weight, and rstd of each row.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace trireme::kernels
