#include "trireme/base/error.hpp"
#include "trireme/kernels/fused_logits.hpp"

namespace trireme::kernels {

bool has_fused_logits(const at::Tensor&) { return false; }

at::Tensor logit_stats(const at::Tensor&, const at::Tensor&, std::int64_t) {
  throw InternalError("logit_stats: this build of Trireme has no CUDA");
}

void softmax_grads_(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t,
                    const at::Tensor&, const at::Tensor&, std::int64_t) {
  throw InternalError("softmax_grads_: this build of Trireme has no CUDA");
}

}  // namespace trireme::kernels
