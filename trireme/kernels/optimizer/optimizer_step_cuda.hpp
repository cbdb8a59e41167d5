#pragma once
// adam_step as one fused CUDA kernel. Only for optimizer_step.cpp.
#include "trireme/kernels/optimizer/optimizer_step.hpp"

namespace trireme::kernels::detail {

/// Adam's precomputed factors that all slices share.
struct AdamFactors {
  double beta1, rest1, beta2, rest2, rate, root, eps;
};
/// Those of one slice.
struct AdamDecay {
  double decay, l2;
};

/// Arguments must be checked by the caller. In a build without CUDA: InternalError.
void adam_on_cuda(std::span<const AdamSlice> slices, std::span<const AdamDecay> decays, const AdamFactors& factors,
                  const GradientFactor& gradient_factor);

}  // namespace trireme::kernels::detail
