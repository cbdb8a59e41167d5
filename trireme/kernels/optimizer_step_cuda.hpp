#pragma once
// adam_step on a GPU, in one pass. Only for optimizer_step.cpp.
#include "trireme/kernels/optimizer_step.hpp"

namespace trireme::kernels::detail {

/// What Adam multiplies by, worked out once.
struct AdamFactors {
  double decay, l2, beta1, rest1, beta2, rest2, rate, root, eps;
};

/// The arguments are right. In a build without CUDA: InternalError.
void adam_on_cuda(const StepSlices& slices, const at::Tensor& m, const at::Tensor& v, const AdamFactors& factors,
                  const GradientFactor& gradient_factor);

}  // namespace trireme::kernels::detail
