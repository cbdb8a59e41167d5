#include "trireme/kernels/matmul/fused_matmul.hpp"

#include <atomic>
#include <cstdint>

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/matmul/fp8_cuda.hpp"
#include "trireme/kernels/matmul/lt_product.hpp"
#include "trireme/kernels/rows/dtype.hpp"
#include "trireme/kernels/rows/on_cuda.hpp"

namespace trireme::kernels {
namespace {

using detail::run_lt_product;

std::atomic<bool> allowed_{true};

constexpr std::int64_t kRowBytes = 16;  // alignment that tensor cores need

bool has_aligned_rows(const at::Tensor& x) {
  return x.dim() == 2 && x.numel() > 0 && x.stride(1) == 1 && x.stride(0) >= x.size(1) &&
         x.stride(0) * x.element_size() % kRowBytes == 0 && x.size(1) * x.element_size() % kRowBytes == 0 &&
         reinterpret_cast<std::uintptr_t>(x.data_ptr()) % kRowBytes == 0;
}

at::Tensor new_matrix(const at::Tensor& like, std::int64_t rows, std::int64_t columns) {
  return at::empty({rows, columns}, like.options().requires_grad(false));
}

void require_matrices(const char* kernel, const at::Tensor& a, const at::Tensor& b, std::int64_t inner_a,
                      std::int64_t inner_b) {
  require(has_aligned_rows(a) && has_aligned_rows(b) && a.size(inner_a) == b.size(inner_b) &&
              a.scalar_type() == b.scalar_type() && a.device() == b.device(),
          kernel, " of ", a.scalar_type(), " ", a.sizes(), " and ", b.scalar_type(), " ", b.sizes(),
          ": must be matrices of one dtype on one GPU, with rows of a multiple of ", kRowBytes, " bytes, dim ", inner_a,
          " of the first as long as dim ", inner_b, " of the second");
}

/// A matrix or vector of these sizes, or undefined.
void require_part(const char* kernel, const char* name, const at::Tensor& x, at::IntArrayRef sizes,
                  const at::Tensor& like) {
  if (!x.defined()) return;
  require(
      x.sizes() == sizes && x.is_contiguous() && x.scalar_type() == like.scalar_type() && x.device() == like.device(),
      kernel, ": ", name, " of ", x.scalar_type(), " ", x.sizes(), " on ", x.device(), ": must be contiguous, of ",
      like.scalar_type(), " ", sizes, " on ", like.device());
}

}  // namespace

bool has_fused_matmul(const at::Tensor& a, const at::Tensor& b) {
  return a.is_cuda() && is_reduced(a.scalar_type()) && a.scalar_type() == b.scalar_type() && has_aligned_rows(a) &&
         has_aligned_rows(b) && allowed_;
}

bool has_fused_linear(const at::Tensor& x_TK, const at::Tensor& weight_NK) {
  return has_fused_matmul(x_TK, weight_NK) && weight_NK.size(0) * weight_NK.element_size() % kRowBytes == 0;
}

void allow_fused_matmul(bool allowed) { allowed_ = allowed; }

int tune_fused_matmul(at::Device device) { return detail::tune_lt_products(device); }

at::Tensor linear_with_residual(const at::Tensor& x_TK, const at::Tensor& weight_NK, const at::Tensor& bias_N,
                                const at::Tensor& residual_TN) {
  require_matrices("linear_with_residual", x_TK, weight_NK, 1, 1);
  const at::Tensor y_TN = new_matrix(x_TK, x_TK.size(0), weight_NK.size(0));
  require_part("linear_with_residual", "bias", bias_N, {weight_NK.size(0)}, x_TK);
  require_part("linear_with_residual", "residual", residual_TN, y_TN.sizes(), x_TK);
  run_lt_product({.out = y_TN,
                  .a = x_TK,
                  .b = weight_NK,
                  .transposed_b = true,
                  .c = residual_TN,
                  .epilogue = bias_N.defined() ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT,
                  .bias = bias_N});
  return y_TN;
}

void product_nn_out(const at::Tensor& out_mn, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  require_matrices("product_nn_out", a_mk, b_kn, 1, 0);
  require_part("product_nn_out", "out", out_mn, {a_mk.size(0), b_kn.size(1)}, a_mk);
  run_lt_product({.out = out_mn, .a = a_mk, .b = b_kn});
}

LinearGelu linear_gelu(const at::Tensor& x_TK, const at::Tensor& weight_NK, const at::Tensor& bias_N) {
  require_matrices("linear_gelu", x_TK, weight_NK, 1, 1);
  require_part("linear_gelu", "bias", bias_N, {weight_NK.size(0)}, x_TK);
  const LinearGelu out{new_matrix(x_TK, x_TK.size(0), weight_NK.size(0)),
                       new_matrix(x_TK, x_TK.size(0), weight_NK.size(0))};
  run_lt_product({.out = out.y,
                  .a = x_TK,
                  .b = weight_NK,
                  .transposed_b = true,
                  .epilogue = bias_N.defined() ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX,
                  .bias = bias_N,
                  .before = out.before});
  return out;
}

at::Tensor gelu_gradient(const at::Tensor& dy_TN, const at::Tensor& weight_NK, const at::Tensor& before_TK) {
  require_matrices("gelu_gradient", dy_TN, weight_NK, 1, 0);
  require_part("gelu_gradient", "before", before_TK, {dy_TN.size(0), weight_NK.size(1)}, dy_TN);
  const at::Tensor dx_TK = new_matrix(dy_TN, dy_TN.size(0), weight_NK.size(1));
  run_lt_product({.out = dx_TK, .a = dy_TN, .b = weight_NK, .epilogue = CUBLASLT_EPILOGUE_DGELU, .before = before_TK});
  return dx_TK;
}

void weight_gradient_out(const at::Tensor& out_NK, const at::Tensor& dy_TN, const at::Tensor& x_TK, bool add) {
  require_matrices("weight_gradient_out", dy_TN, x_TK, 0, 0);
  require(out_NK.scalar_type() == at::kFloat || out_NK.scalar_type() == dy_TN.scalar_type(),
          "weight_gradient_out: out of ", out_NK.scalar_type(), " for operands of ", dy_TN.scalar_type());
  require_part("weight_gradient_out", "out", out_NK, {dy_TN.size(1), x_TK.size(1)}, out_NK);
  run_lt_product({.out = out_NK, .a = dy_TN, .b = x_TK, .transposed_a = true, .c = add ? out_NK : at::Tensor()});
}

int detail::cuda_capability(at::Device device) {
  const cudaDeviceProp* const gpu = at::cuda::getDeviceProperties(device.index());
  return gpu->major * 10 + gpu->minor;
}

std::string detail::why_no_fp8_on_cuda(at::Device device) {
  if (cuda_capability(device) >= 89) return "";  // Ada and Hopper are the first
  const cudaDeviceProp* const gpu = at::cuda::getDeviceProperties(device.index());
  return text(gpu->name, " has compute capability ", gpu->major, ".", gpu->minor, ", fp8 needs 8.9");
}

void detail::fp8_product_on_cuda(const at::Tensor& out_mn, const Fp8Operand& a_mk, const Fp8Operand& b_nk,
                                 const at::Tensor& bias_n, bool add, bool fast) {
  require_part("fp8_matmul_nt", "bias", bias_n, {b_nk.values.size(0)}, out_mn);
  run_lt_product({.out = out_mn,
                  .a = a_mk.values,
                  .b = b_nk.values,
                  .transposed_b = true,
                  .c = add ? out_mn : at::Tensor(),
                  .epilogue = bias_n.defined() ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT,
                  .bias = bias_n,
                  .scale_a = a_mk.scale[1].const_data_ptr<float>(),
                  .scale_b = b_nk.scale[1].const_data_ptr<float>(),
                  .fast = fast});
}

}  // namespace trireme::kernels
