#pragma once
// SwiGLU activation on a fused gate-up tensor, the output of one matmul.
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// y = silu(gate) * up, [T, F], where gate_up [T, 2F] is contiguous and holds gate in its first F columns.
///   backward   with s = sigmoid(gate):  dgate = dy up s (1 + gate (1 - s)),  dup = dy gate s
/// Saved for backward: gate_up.
at::Tensor swiglu(const at::Tensor& gate_up);

}  // namespace trireme::kernels
