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

constexpr int kEach = 4;  // elements per thread and turn

/// Elements i to i + 3 in one access: the array begins at a multiple of four elements, as i is one.
template <class W>
__device__ void load_four(const Array& from, std::int64_t i, W (&x)[kEach]) {
  if (from.dtype == at::kFloat) {
    const float4 v = *reinterpret_cast<const float4*>(static_cast<const float*>(from.data) + i);
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
  } else if (from.dtype == at::kBFloat16) {
    struct alignas(8) {
      c10::BFloat16 at[kEach];
    } v;
    *reinterpret_cast<uint2*>(&v) = *reinterpret_cast<const uint2*>(static_cast<const c10::BFloat16*>(from.data) + i);
    for (int k = 0; k < kEach; ++k) x[k] = static_cast<W>(static_cast<float>(v.at[k]));
  } else {
    for (int k = 0; k < kEach; ++k) x[k] = from.load<W>(i + k);
  }
}
template <class W>
__device__ void store_four(const Array& to, std::int64_t i, const W (&x)[kEach]) {
  if (to.dtype == at::kFloat) {
    *reinterpret_cast<float4*>(static_cast<float*>(to.data) + i) = make_float4(
        static_cast<float>(x[0]), static_cast<float>(x[1]), static_cast<float>(x[2]), static_cast<float>(x[3]));
  } else if (to.dtype == at::kBFloat16) {
    struct alignas(8) {
      c10::BFloat16 at[kEach];
    } v;
    for (int k = 0; k < kEach; ++k) v.at[k] = static_cast<c10::BFloat16>(static_cast<float>(x[k]));
    *reinterpret_cast<uint2*>(static_cast<c10::BFloat16*>(to.data) + i) = *reinterpret_cast<const uint2*>(&v);
  } else {
    for (int k = 0; k < kEach; ++k) to.store(i + k, x[k]);
  }
}

template <class W>
struct Terms {
  W decay, l2, beta1, rest1, beta2, rest2, rate, root, eps;
};

template <class W>
__device__ void adam_element(W& w, W gradient, W& m, W& v, const Terms<W>& t) {
  const W g = gradient + w * t.l2;
  m = m * t.beta1 + g * t.rest1;
  v = v * t.beta2 + g * g * t.rest2;
  w = w * t.decay - m * t.rate / (sqrt(v) * t.root + t.eps);
}

template <class W>
__global__ void adam(Array weight, Array gradient, Array first, Array second, Array model, Array factor, Terms<W> t,
                     std::int64_t n, bool aligned) {
  const W scale = factor.data ? factor.load<W>(0) : W{1};
  if (isnan(scale)) return;  // the step is skipped
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t fours = aligned ? n / kEach : 0;
  for (std::int64_t i = thread * kEach; i < fours * kEach; i += stride * kEach) {
    W w[kEach], g[kEach], m[kEach], v[kEach];
    load_four(weight, i, w);
    load_four(gradient, i, g);
    load_four(first, i, m);
    load_four(second, i, v);
#pragma unroll
    for (int k = 0; k < kEach; ++k) adam_element(w[k], g[k] * scale, m[k], v[k], t);
    store_four(first, i, m);
    store_four(second, i, v);
    store_four(weight, i, w);
    if (model.data) store_four(model, i, w);
  }
  for (std::int64_t i = fours * kEach + thread; i < n; i += stride) {
    W w = weight.load<W>(i), m = first.load<W>(i), v = second.load<W>(i);
    adam_element(w, gradient.load<W>(i) * scale, m, v, t);
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
  bool aligned = true;
  for (const at::Tensor* x : {&slices.weight, &slices.gradient, &m, &v, &slices.model})
    aligned = aligned && (!x->defined() || reinterpret_cast<std::uintptr_t>(x->data_ptr()) %
                                                   (kEach * static_cast<std::size_t>(x->element_size())) ==
                                               0);
  const std::int64_t threads = aligned ? (n + kEach - 1) / kEach : n;
  const std::int64_t blocks = std::min((threads + kThreads - 1) / kThreads, kMostBlocks);
  const Terms<W> terms{static_cast<W>(f.decay), static_cast<W>(f.l2),    static_cast<W>(f.beta1),
                       static_cast<W>(f.rest1), static_cast<W>(f.beta2), static_cast<W>(f.rest2),
                       static_cast<W>(f.rate),  static_cast<W>(f.root),  static_cast<W>(f.eps)};
  adam<W><<<static_cast<unsigned>(blocks), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      Array(slices.weight), Array(slices.gradient), Array(m), Array(v), Array(slices.model), Array(factor.value), terms,
      n, aligned);
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
