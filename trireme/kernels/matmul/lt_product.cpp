#include "trireme/kernels/matmul/lt_product.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include "trireme/base/error.hpp"

namespace trireme::kernels::detail {
namespace {

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

/// What the choice of an algorithm depends on.
using Shape = std::array<std::int64_t, 18>;
constexpr int kFirstAlignment = 12;  // those of the operands are the last

struct Descriptors {
  explicit Descriptors(const LtProduct& p) {
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

Shape shape_of(const LtProduct& p) {
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

/// Whether all operands begin at multiples of 16 bytes, as those do that algorithms are measured with.
bool is_aligned(const Shape& shape) {
  return std::all_of(shape.begin() + kFirstAlignment, shape.end(), [](std::int64_t a) { return a == 0 || a >= 16; });
}

struct Algorithm {
  cublasLtMatmulAlgo_t it{};
  bool is_tuned = false;
  LtProduct example = {};  // of what it is for: tensors on the meta device
};

constexpr int kMostCandidates = 8;

/// Algorithms that can compute this product, what cuBLASLt expects to be the fastest first.
std::vector<cublasLtMatmulAlgo_t> candidates(const LtProduct& p, const Descriptors& with) {
  Preference preference;
  check(cublasLtMatmulPreferenceCreate(&preference.it), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  // Parts of a sum (split-K) are added in float32 and not in a result's 16 bits.
  if (p.out.element_size() < 4)
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.b.data_ptr()));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.a.data_ptr()));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment((p.c.defined() ? p.c : p.out).data_ptr()));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p.out.data_ptr()));
  std::array<cublasLtMatmulHeuristicResult_t, kMostCandidates> found{};
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(), with.product.it, with.a.it, with.b.it,
                                       with.c.it, with.d.it, preference.it, kMostCandidates, found.data(), &count),
        "cublasLtMatmulAlgoGetHeuristic");
  require(count > 0, "cuBLASLt has no algorithm for a product of ", p.a.sizes(), " and ", p.b.sizes(), ", epilogue ",
          static_cast<int>(p.epilogue),
          p.scale_a != nullptr ? "\n  fix: precision.matmul = \"auto\"" : "\n  fix: cuda.fused_matmul = false");
  std::vector<cublasLtMatmulAlgo_t> all;
  for (int i = 0; i < count; ++i) all.push_back(found[static_cast<std::size_t>(i)].algo);
  return all;
}

cublasStatus_t run_with(const cublasLtMatmulAlgo_t& algorithm, const LtProduct& p, const Descriptors& with,
                        const at::Tensor& workspace) {
  const float one = 1, beta = p.c.defined() ? 1 : 0;
  return cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(), with.product.it, &one, p.b.data_ptr(), with.a.it,
                        p.a.data_ptr(), with.b.it, &beta, (p.c.defined() ? p.c : p.out).data_ptr(), with.c.it,
                        p.out.data_ptr(), with.d.it, &algorithm, workspace.data_ptr(), kWorkspaceBytes,
                        at::cuda::getCurrentCUDAStream());
}

at::Tensor new_workspace(at::Device device) {
  return at::empty({static_cast<std::int64_t>(kWorkspaceBytes)}, at::TensorOptions(at::kByte).device(device));
}

/// The same product of `make(tensor)`.
template <class Make>
LtProduct like(const LtProduct& p, const Make& make) {
  LtProduct out = p;
  for (at::Tensor* x : {&out.out, &out.a, &out.b, &out.bias, &out.before})
    if (x->defined()) *x = make(*x);
  if (p.c.defined()) out.c = p.c.is_same(p.out) ? out.out : make(p.c);
  return out;
}

/// Known algorithms by shape: to ask for one may take longer than the product.
class Algorithms {
  static constexpr std::size_t kMostKnown = 1024;  // lengths that differ from step to step are not collected

 public:
  cublasLtMatmulAlgo_t of(const LtProduct& p, const Descriptors& with) {
    const std::scoped_lock lock(mutex_);
    const Shape shape = shape_of(p);
    if (const auto found = known_.find(shape); found != known_.end()) return found->second.it;
    if (known_.size() >= kMostKnown) return candidates(p, with).front();
    const auto meta = [](const at::Tensor& x) {
      return at::empty_strided(x.sizes(), x.strides(), x.options().device(at::kMeta).requires_grad(false));
    };
    return known_.emplace(shape, Algorithm{.it = candidates(p, with).front(), .example = like(p, meta)})
        .first->second.it;
  }
  int tune(at::Device device);

 private:
  std::mutex mutex_;
  std::map<Shape, Algorithm> known_;
};

Algorithms& algorithms() {
  static Algorithms it;
  return it;
}

/// The fastest of the candidates for operands like these.
cublasLtMatmulAlgo_t fastest(const LtProduct& p, const at::Tensor& workspace) {
  constexpr int kTurns = 3, kTimes = 2;
  constexpr float kGain = 0.99F;  // a smaller one may be noise
  const Descriptors with(p);
  const std::vector<cublasLtMatmulAlgo_t> all = candidates(p, with);
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  std::vector<std::vector<float>> times(all.size());
  // In turns, so that a clock that changes meanwhile is the same for all; the first turn loads the kernels.
  for (int turn = -1; turn < kTurns; ++turn)
    for (std::size_t i = 0; i < all.size(); ++i) {
      begin.record();
      cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
      for (int k = 0; k < kTimes && status == CUBLAS_STATUS_SUCCESS; ++k) status = run_with(all[i], p, with, workspace);
      end.record();
      end.synchronize();
      if (turn >= 0)
        times[i].push_back(status == CUBLAS_STATUS_SUCCESS ? begin.elapsed_time(end)
                                                           : std::numeric_limits<float>::infinity());
    }
  const auto median = [](std::vector<float>& of) {
    std::ranges::sort(of);
    return of[of.size() / 2];
  };
  std::size_t best = 0;
  float least = kGain * median(times[0]);
  for (std::size_t i = 1; i < all.size(); ++i)
    if (const float time = median(times[i]); time < least) best = i, least = time;
  return all[best];
}

int Algorithms::tune(at::Device device) {
  const std::scoped_lock lock(mutex_);
  const c10::cuda::CUDAGuard guard(device);
  const c10::DeviceIndex index = guard.current_device().index();
  const at::Tensor workspace = new_workspace(device),
                   scale = at::ones({4}, at::TensorOptions(at::kFloat).device(device));
  at::Generator generator = at::cuda::detail::createCUDAGenerator(index);  // the default one is the model's
  int tuned = 0;
  for (auto& [shape, algorithm] : known_) {
    if (shape[0] != index || algorithm.is_tuned || !is_aligned(shape)) continue;
    // Numbers as in training: how fast a GPU multiplies depends on them, through the power they take.
    LtProduct p = like(algorithm.example, [&](const at::Tensor& x) {
      const at::Tensor y = at::empty_strided(x.sizes(), x.strides(), x.options().device(device));
      return y.copy_(at::randn(x.sizes(), generator, y.options().dtype(at::kHalf)).mul_(0.1));
    });
    if (p.scale_a != nullptr) p.scale_a = p.scale_b = scale.const_data_ptr<float>();
    algorithm.it = fastest(p, workspace);
    algorithm.is_tuned = true;
    ++tuned;
  }
  return tuned;
}

}  // namespace

void run_lt_product(const LtProduct& p) {
  const c10::cuda::CUDAGuard guard(p.out.device());
  const Descriptors with(p);
  const cublasLtMatmulAlgo_t algorithm = algorithms().of(p, with);
  check(run_with(algorithm, p, with, new_workspace(p.out.device())), "cublasLtMatmul");
}

int tune_lt_products(at::Device device) {
  const int tuned = algorithms().tune(device);
  c10::cuda::CUDACachingAllocator::emptyCache();  // the operands had other sizes than those of a step
  return tuned;
}

}  // namespace trireme::kernels::detail
