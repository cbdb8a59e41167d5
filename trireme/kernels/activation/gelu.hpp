#pragma once
// GELU, exact and with GPT-2's tanh approximation.
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// y = x P(x), where P(x) is (1 + erf(x / sqrt 2)) / 2, or in the tanh form (1 + tanh(u)) / 2 with
/// u = sqrt(2 / pi) (x + 0.044715 x^3).
///   backward   dx = dy (P(x) + x P'(x))
/// x is contiguous, of any shape. In f32 the error is below 1e-6 max(1, |x|), in f64 below 1e-14 of it. Saved for
/// backward: x.
at::Tensor gelu(const at::Tensor& x, bool tanh_form);

}  // namespace trireme::kernels
