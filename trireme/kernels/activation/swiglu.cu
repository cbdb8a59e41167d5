// swiglu.cpp as CUDA kernels.
#include <ATen/ops/empty_like.h>

#include "trireme/kernels/rows/cuda_vectors.cuh"
#include "trireme/kernels/rows/on_cuda.hpp"

namespace trireme::kernels::detail {
namespace {

constexpr int kThreads = 256;

__device__ float sigmoid_of(float x) { return 1 / (1 + expf(-x)); }
__device__ double sigmoid_of(double x) { return 1 / (1 + exp(-x)); }

template <class S, class W = WideOf<S>>
__global__ void swiglu_rows(const S* gate_up, S* y, std::int64_t all, std::int64_t vectors) {
  constexpr int kSize = Vector<S>::kSize;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= all) return;
  const std::int64_t row = i / vectors, place = (2 * row * vectors + i % vectors) * kSize;
  const Vector<S> gate = load_vector(gate_up + place), up = load_vector(gate_up + place + vectors * kSize);
  Vector<S> out;
#pragma unroll
  for (int j = 0; j < kSize; ++j) {
    const W g = static_cast<W>(gate.at[j]);
    out.at[j] = static_cast<S>(g * sigmoid_of(g) * static_cast<W>(up.at[j]));
  }
  store_vector(y + i * kSize, out);
}

template <class S, class W = WideOf<S>>
__global__ void swiglu_rows_backward(const S* dy, const S* gate_up, S* d, std::int64_t all, std::int64_t vectors) {
  constexpr int kSize = Vector<S>::kSize;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= all) return;
  const std::int64_t row = i / vectors, place = (2 * row * vectors + i % vectors) * kSize;
  const Vector<S> gate = load_vector(gate_up + place), up = load_vector(gate_up + place + vectors * kSize),
                  dout = load_vector(dy + i * kSize);
  Vector<S> dgate, dup;
#pragma unroll
  for (int j = 0; j < kSize; ++j) {
    const W g = static_cast<W>(gate.at[j]), o = static_cast<W>(dout.at[j]), s = sigmoid_of(g), gs = g * s;
    dgate.at[j] = static_cast<S>(o * static_cast<W>(up.at[j]) * (s + gs * (1 - s)));
    dup.at[j] = static_cast<S>(o * gs);
  }
  store_vector(d + place, dgate);
  store_vector(d + place + vectors * kSize, dup);
}

/// Calls f(S{}, vectors in all, vectors per row, blocks).
template <class F>
void over_vectors(const at::Tensor& gate_up, const F& f) {
  const std::int64_t F_ = gate_up.size(1) / 2, T = gate_up.size(0);
  if (T * F_ == 0) return;
  const c10::cuda::CUDAGuard guard(gate_up.device());
  by_float_dtype("swiglu", gate_up.scalar_type(), [&]<class S>(S zero) {
    const std::int64_t vectors = F_ / Vector<S>::kSize, all = T * vectors;
    f(zero, all, vectors, static_cast<unsigned>((all + kThreads - 1) / kThreads));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

}  // namespace

bool has_swiglu_on_cuda(const at::Tensor& gate_up) {
  return gate_up.is_cuda() && has_vectors(gate_up, gate_up.size(1) / 2);
}

at::Tensor swiglu_on_cuda(const at::Tensor& gate_up) {
  const at::Tensor y = at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options().requires_grad(false));
  over_vectors(gate_up, [&]<class S>(S, std::int64_t all, std::int64_t vectors, unsigned blocks) {
    swiglu_rows<S><<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(gate_up.const_data_ptr<S>(),
                                                                               y.mutable_data_ptr<S>(), all, vectors);
  });
  return y;
}

at::Tensor swiglu_backward_on_cuda(const at::Tensor& any_dy, const at::Tensor& gate_up) {
  const at::Tensor dy = aligned(any_dy);
  const at::Tensor d = at::empty_like(gate_up);
  over_vectors(gate_up, [&]<class S>(S, std::int64_t all, std::int64_t vectors, unsigned blocks) {
    swiglu_rows_backward<S><<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        dy.const_data_ptr<S>(), gate_up.const_data_ptr<S>(), d.mutable_data_ptr<S>(), all, vectors);
  });
  return d;
}

}  // namespace trireme::kernels::detail
