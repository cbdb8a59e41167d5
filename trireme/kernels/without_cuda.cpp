// Takes the place of all .cu files in a build without CUDA. Tensors on a GPU do not exist there.
#include "trireme/base/error.hpp"
#include "trireme/kernels/attention/dropped_rows.hpp"
#include "trireme/kernels/cuda_graph.hpp"
#include "trireme/kernels/dropout/dropout.hpp"
#include "trireme/kernels/loss/fused_logits.hpp"
#include "trireme/kernels/matmul/fp8_cuda.hpp"
#include "trireme/kernels/matmul/fused_matmul.hpp"
#include "trireme/kernels/optimizer/block_squares_cuda.hpp"
#include "trireme/kernels/optimizer/optimizer_step_cuda.hpp"
#include "trireme/kernels/rows/on_cuda.hpp"

namespace trireme::kernels {
namespace {

[[noreturn]] void no_cuda(const char* kernel) {
  throw InternalError(text(kernel, ": tensors on a GPU, but this build of Trireme has no CUDA"));
}

}  // namespace

bool has_fused_logits(const at::Tensor&) { return false; }
at::Tensor logit_stats(const at::Tensor&, const at::Tensor&, std::int64_t) { no_cuda("logit_stats"); }
LossTerms loss_terms(const at::Tensor&, const at::Tensor&, const LossRule&) { no_cuda("loss_terms"); }
void softmax_grads_(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t,
                    const at::Tensor&, const at::Tensor&, std::int64_t) {
  no_cuda("softmax_grads_");
}

struct CudaGraph::Captured {};
CudaGraph::CudaGraph() = default;
CudaGraph::~CudaGraph() = default;
void CudaGraph::capture(const std::function<void()>&) { no_cuda("CUDA graph"); }
void CudaGraph::replay() { no_cuda("CUDA graph"); }
void CudaGraph::release() { no_cuda("CUDA graph"); }
void use_own_stream(at::Device) { no_cuda("use_own_stream"); }

bool has_fused_matmul(const at::Tensor&, const at::Tensor&) { return false; }
bool has_fused_linear(const at::Tensor&, const at::Tensor&) { return false; }
void allow_fused_matmul(bool) {}
int tune_fused_matmul(at::Device) { return 0; }
void product_nn_out(const at::Tensor&, const at::Tensor&, const at::Tensor&) { no_cuda("product_nn_out"); }
at::Tensor linear_with_residual(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  no_cuda("linear_with_residual");
}
LinearGelu linear_gelu(const at::Tensor&, const at::Tensor&, const at::Tensor&) { no_cuda("linear_gelu"); }
at::Tensor gelu_gradient(const at::Tensor&, const at::Tensor&, const at::Tensor&) { no_cuda("gelu_gradient"); }
void weight_gradient_out(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool) {
  no_cuda("weight_gradient_out");
}

namespace detail {

void dropout_on_cuda(const at::Tensor&, double, const DropoutKey&, const DropoutPlace&, const at::Tensor&,
                     const at::Tensor&) {
  no_cuda("dropout");
}
void keep_mask_on_cuda(double, const DropoutKey&, const DropoutPlace&, const at::Tensor&) { no_cuda("keep_mask"); }

bool has_dropped_rows_on_cuda(const at::Tensor&, const DroppedTile&) { return false; }
at::Tensor dropped_probabilities_on_cuda(const at::Tensor&, const DroppedTile&, at::ScalarType, const at::Tensor&) {
  no_cuda("dropped_attention");
}
DroppedGradients dropped_gradients_on_cuda(const at::Tensor&, const at::Tensor&, const DroppedTile&, at::ScalarType,
                                           const at::Tensor&, const at::Tensor&) {
  no_cuda("dropped_attention");
}

void adam_on_cuda(std::span<const AdamSlice>, std::span<const AdamDecay>, const AdamFactors&, const GradientFactor&) {
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
void column_sums_on_cuda(const at::Tensor&, const at::Tensor&, bool) { no_cuda("sum_rows"); }
void add_up_on_cuda(const at::Tensor&, const at::Tensor&, bool) { no_cuda("norm"); }

bool has_swiglu_on_cuda(const at::Tensor&) { return false; }
at::Tensor swiglu_on_cuda(const at::Tensor&) { no_cuda("swiglu"); }
at::Tensor swiglu_backward_on_cuda(const at::Tensor&, const at::Tensor&) { no_cuda("swiglu"); }

bool has_expert_rows_on_cuda(const at::Tensor&) { return false; }
at::Tensor spread_rows_on_cuda(const at::Tensor&, const at::Tensor&) { no_cuda("rows of experts"); }
at::Tensor gather_rows_on_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&) { no_cuda("rows of experts"); }
void gather_rows_backward_on_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                  const at::Tensor&, const at::Tensor&) {
  no_cuda("rows of experts");
}

bool has_rope_on_cuda(const at::Tensor&) { return false; }
at::Tensor rope_on_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t, bool) {
  no_cuda("rope");
}

int cuda_capability(at::Device) { no_cuda("cuda_capability"); }
std::string why_no_fp8_on_cuda(at::Device) { no_cuda("fp8"); }
at::Tensor fp8_largest_on_cuda(const at::Tensor&) { no_cuda("fp8_scale"); }
Fp8Largest fp8_largest_of_lines_on_cuda(const at::Tensor&) { no_cuda("to_fp8"); }
at::Tensor fp8_scales_on_cuda(const at::Tensor&, Fp8) { no_cuda("fp8_scale"); }
void to_fp8_on_cuda(const at::Tensor&, Fp8, const Fp8Matrix&, const at::Tensor&) { no_cuda("to_fp8"); }
void fp8_product_on_cuda(const at::Tensor&, const Fp8Operand&, const Fp8Operand&, const at::Tensor&, bool, bool) {
  no_cuda("fp8_matmul_nt");
}

void block_squares_on_cuda(std::span<const SquaresRun>, const at::Tensor&) { no_cuda("block_squares"); }

}  // namespace detail
}  // namespace trireme::kernels
