#include "trireme/base/error.hpp"
#include "trireme/kernels/dropout.hpp"

namespace trireme::kernels::detail {

void dropout_on_cuda(const at::Tensor& x, double, const DropoutKey&, const DropoutPlace&, const at::Tensor&) {
  throw InternalError(text("dropout: x is on ", x.device(), ", but this build of Trireme has no CUDA"));
}

void keep_mask_on_cuda(double, const DropoutKey&, const DropoutPlace& place, const at::Tensor&) {
  throw InternalError(text("keep_mask: rows are on ", place.rows.device(), ", but this build of Trireme has no CUDA"));
}

}  // namespace trireme::kernels::detail
