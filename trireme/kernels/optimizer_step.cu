// optimizer_step.cpp as a CUDA kernel: every array is read and written once. Memory-bound, so elements are converted by
// a branch on their dtype, which is uniform over all threads, instead of by one kernel per combination.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "trireme/kernels/optimizer_step_cuda.hpp"

namespace trireme::kernels::detail {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 16;

/// An array of any float dtype, or none.
struct Array {
  void* data;
  at::ScalarType dtype;

  explicit Array(const at::Tensor& x)
      : data(x.defined() ? x.mutable_data_ptr() : nullptr), dtype(x.defined() ? x.scalar_type() : at::kFloat) {}

  template <class W>
  __device__ W load(std::int64_t i) const {
    switch (dtype) {
      case at::kDouble: return static_cast<W>(static_cast<const double*>(data)[i]);
      case at::kBFloat16: return static_cast<W>(static_cast<float>(static_cast<const c10::BFloat16*>(data)[i]));
      case at::kHalf: return static_cast<W>(static_cast<float>(static_cast<const c10::Half*>(data)[i]));
      default: return static_cast<W>(static_cast<const float*>(data)[i]);
    }
  }
  template <class W>
  __device__ void store(std::int64_t i, W x) const {
    switch (dtype) {
      case at::kDouble: static_cast<double*>(data)[i] = static_cast<double>(x); break;
      case at::kBFloat16:
        static_cast<c10::BFloat16*>(data)[i] = static_cast<c10::BFloat16>(static_cast<float>(x));
        break;
      case at::kHalf: static_cast<c10::Half*>(data)[i] = static_cast<c10::Half>(static_cast<float>(x)); break;
      default: static_cast<float*>(data)[i] = static_cast<float>(x);
    }
  }
};

template <class W>
struct Terms {
  W decay, l2, beta1, rest1, beta2, rest2, rate, root, eps;
};

template <class W>
__global__ void adam(Array weight, Array gradient, Array first, Array second, Array model, Array factor, Terms<W> t,
                     std::int64_t n) {
  const W scale = factor.data ? factor.load<W>(0) : W{1};
  if (isnan(scale)) return;  // the step is skipped
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    W w = weight.load<W>(i);
    const W g = gradient.load<W>(i) * scale + w * t.l2;
    const W m = first.load<W>(i) * t.beta1 + g * t.rest1;
    const W v = second.load<W>(i) * t.beta2 + g * g * t.rest2;
    w = w * t.decay - m * t.rate / (sqrt(v) * t.root + t.eps);
    first.store(i, m);
    second.store(i, v);
    weight.store(i, w);
    if (model.data) model.store(i, w);
  }
}

template <class W>
void launch(const StepSlices& slices, const at::Tensor& m, const at::Tensor& v, const AdamFactors& f,
            const GradientFactor& factor) {
  const std::int64_t n = slices.weight.numel();
  if (n == 0) return;
  const c10::cuda::CUDAGuard guard(slices.weight.device());
  const std::int64_t blocks = std::min((n + kThreads - 1) / kThreads, kMostBlocks);
  const Terms<W> terms{static_cast<W>(f.decay), static_cast<W>(f.l2),    static_cast<W>(f.beta1),
                       static_cast<W>(f.rest1), static_cast<W>(f.beta2), static_cast<W>(f.rest2),
                       static_cast<W>(f.rate),  static_cast<W>(f.root),  static_cast<W>(f.eps)};
  adam<W><<<static_cast<unsigned>(blocks), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      Array(slices.weight), Array(slices.gradient), Array(m), Array(v), Array(slices.model), Array(factor.value), terms,
      n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

void adam_on_cuda(const StepSlices& slices, const at::Tensor& m, const at::Tensor& v, const AdamFactors& factors,
                  const GradientFactor& gradient_factor) {
  if (slices.weight.scalar_type() == at::kDouble)
    launch<double>(slices, m, v, factors, gradient_factor);
  else
    launch<float>(slices, m, v, factors, gradient_factor);
}

}  // namespace trireme::kernels::detail
