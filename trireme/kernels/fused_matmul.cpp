#include "trireme/kernels/fused_matmul.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublasLt.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/dtype.hpp"
#include "trireme/kernels/on_cuda.hpp"

namespace trireme::kernels {
namespace {

std::atomic<bool> allowed_{true};

constexpr std::int64_t kRowBytes = 16;                          // alignment that tensor cores need
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // what NVIDIA recommends for Hopper

void check(cublasStatus_t status, const char* call) {
  require(status == CUBLAS_STATUS_SUCCESS, call, ": ", cublasLtGetStatusString(status));
}

cudaDataType_t type_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kBFloat16: return CUDA_R_16BF;
    case at::kHalf: return CUDA_R_16F;
    case at::kFloat8_e4m3fn: return CUDA_R_8F_E4M3;
    case at::kFloat8_e5m2: return CUDA_R_8F_E5M2;
    default: return CUDA_R_32F;
  }
}

/// Owns one of cuBLASLt's descriptors.
template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
struct Owned {
  Handle it = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { kDestroy(it); }
};
using Descriptor = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

template <class T>
void set(const Descriptor& descriptor, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(descriptor.it, attribute, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute");
}
template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.it, attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
}

std::uint32_t alignment(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::uint32_t bytes = 256;  // more makes no difference
  while (address % bytes != 0) bytes /= 2;
  return bytes;
}

/// out [m, n] = op(a) [m, k] op(b) [k, n] + c, all in rows. cuBLASLt has columns: it computes the transposed, b^T a^T.
struct Product {
  at::Tensor out, a, b;
  bool transposed_a = false, transposed_b = false;
  at::Tensor c = {};  // may be `out`
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  at::Tensor bias = {};                                // added or written
  at::Tensor before = {};                              // GELU's input, written or read
  const float *scale_a = nullptr, *scale_b = nullptr;  // of fp8: on the device; they multiply the result
  bool fast = false;                                   // sums of fp8 with fewer bits
};

/// What the choice of an algorithm depends on.
using Shape = std::array<std::int64_t, 18>;

struct Descriptors {
  explicit Descriptors(const Product& p) {
    check(cublasLtMatmulDescCreate(&product.it, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(product, CUBLASLT_MATMUL_DESC_TRANSA, p.transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(product, CUBLASLT_MATMUL_DESC_TRANSB, p.transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    if (p.bias.defined()) {
      const void* const bias = p.bias.data_ptr();
      set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
      set(product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.bias));
    }
    if (p.before.defined()) {
      const void* const before = p.before.data_ptr();
      const std::int64_t row = p.before.stride(0);
      set(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, before);
      set(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, row);
    }
    if (p.scale_a != nullptr) {
      set(product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(p.scale_b));
      set(product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(p.scale_a));
      set(product, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(p.fast));
    }
    for (const auto& [layout, matrix] : {std::pair(&a, &p.b), std::pair(&b, &p.a),
                                         std::pair(&c, p.c.defined() ? &p.c : &p.out), std::pair(&d, &p.out)})
      check(cublasLtMatrixLayoutCreate(&layout->it, type_of(*matrix), static_cast<std::uint64_t>(matrix->size(1)),
                                       static_cast<std::uint64_t>(matrix->size(0)), matrix->stride(0)),
            "cublasLtMatrixLayoutCreate");
  }
  Descriptor product;
  MatrixLayout a, b, c, d;
};

Shape shape_of(const Product& p) {
  const at::Tensor& c = p.c.defined() ? p.c : p.out;
  const auto at = [](const at::Tensor& x) { return x.defined() ? alignment(x.data_ptr()) : 0; };
  return {p.out.get_device(),
          p.a.size(0),
          p.a.size(1),
          p.b.size(0),
          p.b.size(1),
          p.a.stride(0),
          p.b.stride(0),
          p.out.stride(0),
          c.stride(0),
          p.transposed_a | p.transposed_b << 1 | p.c.defined() << 2 | p.fast << 3,
          static_cast<std::int64_t>(p.epilogue),
          type_of(p.a) << 16 | type_of(p.b) << 8 | type_of(p.out),
          at(p.a),
          at(p.b),
          at(c),
          at(p.out),
          at(p.bias),
          at(p.before)};
}

cublasLtMatmulAlgo_t choose_algorithm(const Product& p, const Descriptors& with) {
  Preference preference;
  check(cublasLtMatmulPreferenceCreate(&preference.it), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.b.data_ptr()));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.a.data_ptr()));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment((p.c.defined() ? p.c : p.out).data_ptr()));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p.out.data_ptr()));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(), with.product.it, with.a.it, with.b.it,
                                       with.c.it, with.d.it, preference.it, 1, &best, &found),
        "cublasLtMatmulAlgoGetHeuristic");
  require(found > 0, "cuBLASLt has no algorithm for a product of ", p.a.sizes(), " and ", p.b.sizes(), ", epilogue ",
          static_cast<int>(p.epilogue),
          p.scale_a != nullptr ? "\n  fix: precision.matmul = \"auto\"" : "\n  fix: cuda.fused_matmul = false");
  return best.algo;
}

/// By shape: the first choice takes longer than the product.
cublasLtMatmulAlgo_t algorithm_for(const Product& p, const Descriptors& with) {
  static std::mutex mutex;
  static std::map<Shape, cublasLtMatmulAlgo_t> known;
  const std::scoped_lock lock(mutex);
  const Shape shape = shape_of(p);
  if (const auto found = known.find(shape); found != known.end()) return found->second;
  return known.emplace(shape, choose_algorithm(p, with)).first->second;
}

void run(const Product& p) {
  const c10::cuda::CUDAGuard guard(p.out.device());
  const Descriptors with(p);
  const cublasLtMatmulAlgo_t algorithm = algorithm_for(p, with);
  const at::Tensor workspace =
      at::empty({static_cast<std::int64_t>(kWorkspaceBytes)}, p.out.options().dtype(at::kByte));
  const float one = 1, beta = p.c.defined() ? 1 : 0;
  check(cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(), with.product.it, &one, p.b.data_ptr(), with.a.it,
                       p.a.data_ptr(), with.b.it, &beta, (p.c.defined() ? p.c : p.out).data_ptr(), with.c.it,
                       p.out.data_ptr(), with.d.it, &algorithm, workspace.data_ptr(), kWorkspaceBytes,
                       at::cuda::getCurrentCUDAStream()),
        "cublasLtMatmul");
}

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

void allow_fused_matmul(bool allowed) { allowed_ = allowed; }

at::Tensor linear_with_residual(const at::Tensor& x_TK, const at::Tensor& weight_NK, const at::Tensor& bias_N,
                                const at::Tensor& residual_TN) {
  require_matrices("linear_with_residual", x_TK, weight_NK, 1, 1);
  const at::Tensor y_TN = new_matrix(x_TK, x_TK.size(0), weight_NK.size(0));
  require_part("linear_with_residual", "bias", bias_N, {weight_NK.size(0)}, x_TK);
  require_part("linear_with_residual", "residual", residual_TN, y_TN.sizes(), x_TK);
  run({.out = y_TN,
       .a = x_TK,
       .b = weight_NK,
       .transposed_b = true,
       .c = residual_TN,
       .epilogue = bias_N.defined() ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT,
       .bias = bias_N});
  return y_TN;
}

LinearGelu linear_gelu(const at::Tensor& x_TK, const at::Tensor& weight_NK, const at::Tensor& bias_N) {
  require_matrices("linear_gelu", x_TK, weight_NK, 1, 1);
  require_part("linear_gelu", "bias", bias_N, {weight_NK.size(0)}, x_TK);
  const LinearGelu out{new_matrix(x_TK, x_TK.size(0), weight_NK.size(0)),
                       new_matrix(x_TK, x_TK.size(0), weight_NK.size(0))};
  run({.out = out.y,
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
  run({.out = dx_TK, .a = dy_TN, .b = weight_NK, .epilogue = CUBLASLT_EPILOGUE_DGELU, .before = before_TK});
  return dx_TK;
}

void weight_gradient_out(const at::Tensor& out_NK, const at::Tensor& dy_TN, const at::Tensor& x_TK, bool add) {
  require_matrices("weight_gradient_out", dy_TN, x_TK, 0, 0);
  require(out_NK.scalar_type() == at::kFloat || out_NK.scalar_type() == dy_TN.scalar_type(),
          "weight_gradient_out: out of ", out_NK.scalar_type(), " for operands of ", dy_TN.scalar_type());
  require_part("weight_gradient_out", "out", out_NK, {dy_TN.size(1), x_TK.size(1)}, out_NK);
  run({.out = out_NK, .a = dy_TN, .b = x_TK, .transposed_a = true, .c = add ? out_NK : at::Tensor()});
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
  run({.out = out_mn,
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
