#pragma once
// RMS norm whose weight is added to 1 (Gemma).
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// y = x * rsqrt(mean(x^2) + eps) * (1 + weight) over the last dim, computed in f32 (f64 for f64) and rounded once: 1 +
/// weight in 16 bits would lose most of a small weight. x [..., D] is contiguous. Saved for backward: x and weight.
at::Tensor unit_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace trireme::kernels
