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
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_fp16.h>

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

/// The sums of kCount numbers (a power of two) over a warp; each thread gets the one that value_of_lane() says. Threads
/// exchange halves of the numbers, so that kCount numbers take little more steps than one.
template <int kCount, class W>
__device__ W warp_sums(W (&x)[kCount]) {
  const int lane = threadIdx.x % kWarp;
  int bit = 1;
#pragma unroll
  for (int half = kCount / 2; half > 0; half /= 2, bit *= 2)
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const bool upper = lane & bit;
      const W kept = upper ? x[i + half] : x[i];
      x[i] = kept + __shfl_xor_sync(~0U, upper ? x[i] : x[i + half], bit);
    }
  W sum = x[0];
  for (; bit < kWarp; bit *= 2) sum += __shfl_xor_sync(~0U, sum, bit);
  return sum;
}
template <int kCount>
__device__ int value_of_lane(int lane) {
  int value = 0;
  for (int half = kCount / 2, bit = 1; half > 0; half /= 2, bit *= 2) value += lane & bit ? half : 0;
  return value;
}

/// The sums of kCount numbers over the threads of a block, the same in all of them. `shared` has space for kCount
/// numbers per warp. Calls that follow each other must use different ones: a thread may still read the first.
template <int kCount, class W>
__device__ void block_sums(W (&x)[kCount], W* shared) {
  static_assert((kCount & (kCount - 1)) == 0);
  const int warps = static_cast<int>((blockDim.x + kWarp - 1) / kWarp), lane = threadIdx.x % kWarp;
  const W own = warp_sums(x);
  if (lane < kCount) shared[threadIdx.x / kWarp * kCount + value_of_lane<kCount>(lane)] = own;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    W sum = shared[k];
    for (int w = 1; w < warps; ++w) sum += shared[w * kCount + k];
    x[k] = sum;
  }
}

/// A vector as the four registers that hold it. Elements are taken out where they are needed: what the compiler has
/// split into elements once, it keeps in twice as many registers, or puts together and splits again.
template <class S>
struct Words {
  static constexpr int kSize = Vector<S>::kSize;
  std::uint32_t at[4] = {};

  __device__ WideOf<S> element(int i) const {
    if constexpr (std::is_same_v<S, double>) return __hiloint2double(at[2 * i + 1], at[2 * i]);
    if constexpr (std::is_same_v<S, float>) return __uint_as_float(at[i]);
    const std::uint32_t word = at[i / 2];
    if constexpr (std::is_same_v<S, c10::BFloat16>)
      return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xFFFF0000U);
    if constexpr (std::is_same_v<S, c10::Half>)
      return __half2float(__ushort_as_half(static_cast<unsigned short>(i % 2 == 0 ? word : word >> 16)));
  }
  /// Hides from the compiler what the registers contain, so that it does not keep elements that it has taken out.
  __device__ void forget() { asm volatile("" : "+r"(at[0]), "+r"(at[1]), "+r"(at[2]), "+r"(at[3])); }
};
template <class S>
__device__ Words<S> load_words(const S* from) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  return {{v.x, v.y, v.z, v.w}};
}

/// out[c] = (`add`: +=) the sum of partial[r][c] over r. 32 x 32 threads.
template <class S, class W>
__global__ void sum_partial_rows(const W* partial, std::int64_t rows, std::int64_t columns, std::int64_t stride, S* out,
                                 bool add) {
  __shared__ W shared[kWarp][kWarp + 1];
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  W sum = 0;
  if (c < columns) {
#pragma unroll 8
    for (std::int64_t r = threadIdx.y; r < rows; r += kWarp) sum += partial[r * stride + c];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // Transposed: a warp adds up one column.
  sum = warp_sum(shared[threadIdx.x][threadIdx.y]);
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.y;
  if (threadIdx.x == 0 && own < columns) out[own] = static_cast<S>(add ? static_cast<W>(out[own]) + sum : sum);
}

/// out [columns] of any dtype = (`add`: +=) the sums over dim 0 of partial [rows, columns], whose rows are contiguous.
template <class W>
void sum_partial_rows_into(const at::Tensor& out, const at::Tensor& partial, bool add) {
  const std::int64_t rows = partial.size(0), columns = partial.size(1);
  require(out.is_contiguous() && out.numel() == columns && out.device() == partial.device(), "sums of ", columns,
          " columns on ", partial.device(), " into a tensor of sizes ", out.sizes(), " on ", out.device());
  if (columns == 0) return;
  by_float_dtype("sums of columns", out.scalar_type(), [&]<class S>(S) {
    sum_partial_rows<<<static_cast<unsigned>((columns + kWarp - 1) / kWarp), dim3(kWarp, kWarp), 0,
                       c10::cuda::getCurrentCUDAStream()>>>(partial.const_data_ptr<W>(), rows, columns,
                                                            partial.stride(0), out.mutable_data_ptr<S>(), add);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

}  // namespace trireme::kernels::detail
