#pragma once
// adam_step as one fused CUDA kernel. Only for optimizer_step.cpp.
#include "trireme/kernels/optimizer_step.hpp"

namespace trireme::kernels::detail {

/// Adam's precomputed factors.
struct AdamFactors {
  double decay, l2, beta1, rest1, beta2, rest2, rate, root, eps;
};

/// Arguments must be checked by the caller. In a build without CUDA: InternalError.
void adam_on_cuda(const StepSlices& slices, const at::Tensor& m, const at::Tensor& v, const AdamFactors& factors,
                  const GradientFactor& gradient_factor);

}  // namespace trireme::kernels::detail
