#pragma once
// Shared by the CUDA kernels: 16 bytes per load and store, sums over a block, and sums over rows in a fixed order.
// All kernels here are memory-bound.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "trireme/base/error.hpp"

namespace trireme::kernels::detail {

constexpr int kWarp = 32;

/// The type in which a kernel computes.
template <class S>
using WideOf = std::conditional_t<std::is_same_v<S, double>, double, float>;

template <class S>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(S);
  S at[kSize];
};

template <class S>
__device__ Vector<S> load_vector(const S* from) {
  return *reinterpret_cast<const Vector<S>*>(from);
}
template <class S>
__device__ void store_vector(S* to, const Vector<S>& x) {
  *reinterpret_cast<Vector<S>*>(to) = x;
}

/// Whether rows of `width` elements can be read as vectors: their beginnings are then aligned.
inline bool has_vectors(const at::Tensor& x, std::int64_t width) {
  return !x.defined() ||
         (width * x.element_size() % 16 == 0 && reinterpret_cast<std::uintptr_t>(x.data_ptr()) % 16 == 0);
}

/// x, or a copy if it does not begin at a multiple of 16 bytes: a view into a flat buffer may begin anywhere.
inline at::Tensor aligned(const at::Tensor& x) { return !x.defined() || has_vectors(x, 16) ? x : x.clone(); }

/// Calls f(S{}) with the C++ type of the elements.
template <class F>
void by_float_dtype(const char* kernel, at::ScalarType dtype, const F& f) {
  switch (dtype) {
    case at::kFloat: return f(float{});
    case at::kDouble: return f(double{});
    case at::kBFloat16: return f(c10::BFloat16{});
    case at::kHalf: return f(c10::Half{});
    default: throw InternalError(text(kernel, ": dtype ", dtype, " has no CUDA kernel"));
  }
}

template <class W>
__device__ W warp_sum(W x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0U, x, step);
  return x;
}

/// The sums of kCount numbers over the threads of a block, the same in all of them. `shared` has space for kCount
/// numbers per warp. Calls that follow each other must use different ones: a thread may still read the first.
template <int kCount, class W>
__device__ void block_sums(W (&x)[kCount], W* shared) {
  const int warps = static_cast<int>((blockDim.x + kWarp - 1) / kWarp), warp = threadIdx.x / kWarp;
#pragma unroll
  for (int k = 0; k < kCount; ++k) x[k] = warp_sum(x[k]);
  if (warps == 1) return;
  if (threadIdx.x % kWarp == 0) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) shared[warp * kCount + k] = x[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    W sum = shared[k];
    for (int w = 1; w < warps; ++w) sum += shared[w * kCount + k];
    x[k] = sum;
  }
}

/// out[c] = the sum of partial[r][c] over r. 32 x 32 threads.
template <class S, class W>
__global__ void sum_partial_rows(const W* partial, std::int64_t rows, std::int64_t columns, S* out) {
  __shared__ W shared[kWarp][kWarp + 1];
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  W sum = 0;
  if (c < columns) {
#pragma unroll 8
    for (std::int64_t r = threadIdx.y; r < rows; r += kWarp) sum += partial[r * columns + c];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // Transposed: a warp adds up one column.
  sum = warp_sum(shared[threadIdx.x][threadIdx.y]);
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.y;
  if (threadIdx.x == 0 && own < columns) out[own] = static_cast<S>(sum);
}

/// The sums over dim 0 of partial [rows, columns], rounded to S.
template <class S>
at::Tensor summed_rows(const at::Tensor& partial, at::ScalarType dtype) {
  const std::int64_t rows = partial.size(0), columns = partial.size(1);
  const at::Tensor out = at::empty({columns}, partial.options().dtype(dtype));
  if (columns == 0) return out;
  sum_partial_rows<<<static_cast<unsigned>((columns + kWarp - 1) / kWarp), dim3(kWarp, kWarp), 0,
                     c10::cuda::getCurrentCUDAStream()>>>(partial.const_data_ptr<WideOf<S>>(), rows, columns,
                                                          out.mutable_data_ptr<S>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

}  // namespace trireme::kernels::detail
