// optimizer_step.cpp as a CUDA kernel: every array is read and written once. Memory-bound, so elements are converted by
// a branch on their dtype, which is uniform over all threads, instead of by one kernel per combination.
#include <array>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "trireme/kernels/optimizer/optimizer_step_cuda.hpp"

namespace trireme::kernels::detail {
namespace {

constexpr int kThreads = 256;

/// An array of any float dtype, or none.
struct Array {
  void* data;
  at::ScalarType dtype;

  explicit Array(const at::Tensor& x)
      : data(x.defined() ? x.mutable_data_ptr() : nullptr), dtype(x.defined() ? x.scalar_type() : at::kFloat) {}
  __device__ Array(void* data_, at::ScalarType dtype_) : data(data_), dtype(dtype_) {}

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

constexpr int kMostSlices = 32;
constexpr std::int64_t kChunk = 2 * kThreads * kEach;  // elements of a thread block

/// The slices of a launch, as an argument of the kernel: no copy to the device is waited for.
template <class W>
struct Slices {
  void *weight[kMostSlices], *gradient[kMostSlices], *first[kMostSlices], *second[kMostSlices], *model[kMostSlices];
  std::int64_t numel[kMostSlices];
  std::int64_t end[kMostSlices];  // thread blocks of this slice and those before
  W decay[kMostSlices], l2[kMostSlices];
  bool aligned[kMostSlices];
  int count = 0;
  at::ScalarType weight_dtype = at::kFloat, gradient_dtype = at::kFloat, moment_dtype = at::kFloat,
                 model_dtype = at::kFloat;
};

template <class W>
__global__ void adam(const Slices<W> all, Array factor, Terms<W> t) {
  const W scale = factor.data ? factor.load<W>(0) : W{1};
  if (isnan(scale)) return;  // the step is skipped
  int s = 0;
  while (blockIdx.x >= all.end[s]) ++s;
  t.decay = all.decay[s];
  t.l2 = all.l2[s];
  const Array weight(all.weight[s], all.weight_dtype), gradient(all.gradient[s], all.gradient_dtype),
      first(all.first[s], all.moment_dtype), second(all.second[s], all.moment_dtype),
      model(all.model[s], all.model_dtype);
  const std::int64_t begin = (blockIdx.x - (s > 0 ? all.end[s - 1] : 0)) * kChunk,
                     end = min(all.numel[s], begin + kChunk),
                     fours_end = all.aligned[s] ? begin + (end - begin) / kEach * kEach : begin;
#pragma unroll
  for (int turn = 0; turn < kChunk / (kThreads * kEach); ++turn) {
    const std::int64_t i = begin + (turn * kThreads + threadIdx.x) * kEach;
    if (i >= fours_end) break;
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
  for (std::int64_t i = fours_end + threadIdx.x; i < end; i += kThreads) {
    W w = weight.load<W>(i), m = first.load<W>(i), v = second.load<W>(i);
    adam_element(w, gradient.load<W>(i) * scale, m, v, t);
    first.store(i, m);
    second.store(i, v);
    weight.store(i, w);
    if (model.data) model.store(i, w);
  }
}

void* data_of(const at::Tensor& x) { return x.defined() ? x.mutable_data_ptr() : nullptr; }
at::ScalarType dtype_of(const at::Tensor& x) { return x.defined() ? x.scalar_type() : at::kFloat; }

/// Whether all arrays begin at a multiple of four elements.
bool is_aligned(const AdamSlice& slice) {
  for (const at::Tensor* x : {&slice.values.weight, &slice.values.gradient, &slice.m, &slice.v, &slice.values.model}) {
    const std::size_t unit = x->defined() ? kEach * static_cast<std::size_t>(x->element_size()) : 1;
    if (reinterpret_cast<std::uintptr_t>(data_of(*x)) % unit != 0) return false;
  }
  return true;
}

template <class W>
void launch(std::span<const AdamSlice> slices, std::span<const AdamDecay> decays, const AdamFactors& f,
            const GradientFactor& factor) {
  const c10::cuda::CUDAGuard guard(slices[0].values.weight.device());
  const Terms<W> terms{W{1},
                       W{0},
                       static_cast<W>(f.beta1),
                       static_cast<W>(f.rest1),
                       static_cast<W>(f.beta2),
                       static_cast<W>(f.rest2),
                       static_cast<W>(f.rate),
                       static_cast<W>(f.root),
                       static_cast<W>(f.eps)};
  Slices<W> next;
  const auto start = [&] {
    if (next.count == 0) return;
    adam<W><<<static_cast<unsigned>(next.end[next.count - 1]), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        next, Array(factor.value), terms);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    next.count = 0;
  };
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const AdamSlice& slice = slices[i];
    const StepSlices& x = slice.values;
    if (x.weight.numel() == 0) continue;
    const std::array dtypes{dtype_of(x.weight), dtype_of(x.gradient), dtype_of(slice.m), dtype_of(x.model)};
    if (next.count == kMostSlices ||
        dtypes != std::array{next.weight_dtype, next.gradient_dtype, next.moment_dtype, next.model_dtype})
      start();
    next.weight_dtype = dtypes[0];
    next.gradient_dtype = dtypes[1];
    next.moment_dtype = dtypes[2];
    next.model_dtype = dtypes[3];
    const int s = next.count++;
    next.weight[s] = data_of(x.weight);
    next.gradient[s] = data_of(x.gradient);
    next.first[s] = data_of(slice.m);
    next.second[s] = data_of(slice.v);
    next.model[s] = data_of(x.model);
    next.numel[s] = x.weight.numel();
    next.end[s] = (x.weight.numel() + kChunk - 1) / kChunk + (s > 0 ? next.end[s - 1] : 0);
    next.decay[s] = static_cast<W>(decays[i].decay);
    next.l2[s] = static_cast<W>(decays[i].l2);
    next.aligned[s] = is_aligned(slice);
  }
  start();
}

}  // namespace

void adam_on_cuda(std::span<const AdamSlice> slices, std::span<const AdamDecay> decays, const AdamFactors& factors,
                  const GradientFactor& gradient_factor) {
  if (slices[0].values.weight.scalar_type() == at::kDouble)
    launch<double>(slices, decays, factors, gradient_factor);
  else
    launch<float>(slices, decays, factors, gradient_factor);
}

}  // namespace trireme::kernels::detail
