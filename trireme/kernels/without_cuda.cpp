// Takes the place of all .cu files in a build without CUDA. Tensors on a GPU do not exist there.
#include "trireme/base/error.hpp"
#include "trireme/kernels/dropout.hpp"
#include "trireme/kernels/fused_logits.hpp"
#include "trireme/kernels/on_cuda.hpp"
#include "trireme/kernels/optimizer_step_cuda.hpp"

namespace trireme::kernels {
namespace {

[[noreturn]] void no_cuda(const char* kernel) {
  throw InternalError(text(kernel, ": tensors on a GPU, but this build of Trireme has no CUDA"));
}

}  // namespace

bool has_fused_logits(const at::Tensor&) { return false; }
at::Tensor logit_stats(const at::Tensor&, const at::Tensor&, std::int64_t) { no_cuda("logit_stats"); }
void softmax_grads_(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t,
                    const at::Tensor&, const at::Tensor&, std::int64_t) {
  no_cuda("softmax_grads_");
}

namespace detail {

void dropout_on_cuda(const at::Tensor&, double, const DropoutKey&, const DropoutPlace&, const at::Tensor&) {
  no_cuda("dropout");
}
void keep_mask_on_cuda(double, const DropoutKey&, const DropoutPlace&, const at::Tensor&) { no_cuda("keep_mask"); }

void adam_on_cuda(const StepSlices&, const at::Tensor&, const at::Tensor&, const AdamFactors&, const GradientFactor&) {
  no_cuda("adam_step");
}

bool has_norm_on_cuda(const at::Tensor&) { return false; }
NormResult norm_on_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, double) {
  no_cuda("norm");
}
NormGradients norm_backward_on_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&, const at::Tensor&) {
  no_cuda("norm");
}

bool has_column_sums_on_cuda(const at::Tensor&) { return false; }
at::Tensor column_sums_on_cuda(const at::Tensor&) { no_cuda("sum_rows"); }

bool has_swiglu_on_cuda(const at::Tensor&) { return false; }
at::Tensor swiglu_on_cuda(const at::Tensor&) { no_cuda("swiglu"); }
at::Tensor swiglu_backward_on_cuda(const at::Tensor&, const at::Tensor&) { no_cuda("swiglu"); }

bool has_rope_on_cuda(const at::Tensor&) { return false; }
at::Tensor rope_on_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t, bool) {
  no_cuda("rope");
}

void block_squares_on_cuda(std::span<const SquaresRun>, const at::Tensor&) { no_cuda("block_squares"); }

}  // namespace detail
}  // namespace trireme::kernels
