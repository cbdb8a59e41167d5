#pragma once
// GEGLU activation on a fused gate-up tensor, the output of one matmul.
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// y = gelu(gate) * up, [T, F], where gate_up [T, 2F] holds gate in its first F columns. `tanh`: the approximation with
/// tanh, else the form with erf.
///   backward   dgate = dy up gelu'(gate),  dup = dy gelu(gate)
/// Saved for backward: gate_up.
at::Tensor geglu(const at::Tensor& gate_up, bool tanh);

}  // namespace trireme::kernels
