#include "trireme/base/error.hpp"
#include "trireme/kernels/optimizer_step_cuda.hpp"

namespace trireme::kernels::detail {

void adam_on_cuda(const StepSlices& slices, const at::Tensor&, const at::Tensor&, const AdamFactors&,
                  const GradientFactor&) {
  throw InternalError(
      text("adam_step: weights are on ", slices.weight.device(), ", but this build of Trireme has no CUDA"));
}

}  // namespace trireme::kernels::detail
