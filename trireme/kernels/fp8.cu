// fp8.cpp as CUDA kernels: the largest element, and one pass that rounds a matrix and transposes it.
#include <ATen/ops/zeros.h>
#include <cuda_fp8.h>

#include "trireme/kernels/cuda_vectors.cuh"
#include "trireme/kernels/on_cuda.hpp"

namespace trireme::kernels::detail {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1056;

/// The bits of a float that is not negative compare as integers, so the result does not depend on the order.
template <class S>
__global__ void find_largest(const S* x, std::int64_t n, int* bits) {
  constexpr int kSize = Vector<S>::kSize;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  float most = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n / kSize; i += stride) {
    const Vector<S> v = load_vector(x + i * kSize);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const float a = fabsf(static_cast<float>(v.at[j]));
      if (isfinite(a)) most = fmaxf(most, a);
    }
  }
  for (int step = kWarp / 2; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0U, most, step));
  __shared__ float of_warp[kThreads / kWarp];
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const float other : of_warp) most = fmaxf(most, other);
  atomicMax(bits, __float_as_int(most));
}

/// The largest power of two that keeps `most` within the format, and its inverse.
__global__ void choose_scale(const int* bits, float largest, float* scale) {
  const float most = __int_as_float(*bits);
  int exponent = 0;
  if (most > 0) {
    // Not by log2, which is not exact: the quotient lies in [2^exponent, 2^(exponent + 1)).
    const float quotient = largest / most;
    if (isfinite(quotient)) frexpf(quotient, &exponent);
    exponent = isfinite(quotient) ? min(126, max(-126, exponent - 1)) : 126;
  }
  scale[0] = ldexpf(1.0F, exponent);
  scale[4] = ldexpf(1.0F, -exponent);
}

constexpr int kTile = 64, kEach = 8, kTileThreads = kTile / kEach;  // 8 x 32 threads
constexpr int kTileRows = 32;
constexpr int kColumnBytes = kTile + 4;  // of a column of a tile in shared memory: fewer threads per bank

struct alignas(8) Eight {
  __nv_fp8_storage_t at[kEach];
};

template <class S>
__device__ void load_eight(const S* from, float (&x)[kEach]) {
  constexpr int kSize = Vector<S>::kSize;
#pragma unroll
  for (int k = 0; k < kEach; k += kSize) {
    const Vector<S> v = load_vector(from + k);
#pragma unroll
    for (int j = 0; j < kSize; ++j) x[k + j] = static_cast<float>(v.at[j]);
  }
}

/// x [m, n] into rows [m, n] and columns [n, m], each of which may be null. m and n are multiples of 16: of a tile, a
/// thread has eight columns that exist, or none.
template <class S, __nv_fp8_interpretation_t kFormat>
__global__ void round_tiles(const S* x, std::int64_t m, std::int64_t n, const float* scale, __nv_fp8_storage_t* rows,
                            __nv_fp8_storage_t* columns) {
  __shared__ __align__(16) __nv_fp8_storage_t tile[kTile][kColumnBytes];
  const float factor = scale[0];
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kTile,
                     first_column = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const std::int64_t column = first_column + threadIdx.x * kEach;
#pragma unroll
  for (int r = threadIdx.y; r < kTile; r += kTileRows) {
    const std::int64_t row = first_row + r;
    if (row >= m || column >= n) continue;
    float wide[kEach];
    load_eight(x + row * n + column, wide);
    Eight out;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      // Infinity becomes NaN, so that what overflowed is noticed.
      const float x = isinf(wide[j]) ? NAN : wide[j] * factor;
      out.at[j] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, kFormat);
    }
    if (rows) *reinterpret_cast<Eight*>(rows + row * n + column) = out;
    if (columns) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) tile[threadIdx.x * kEach + j][r] = out.at[j];
    }
  }
  if (!columns) return;
  __syncthreads();
  const std::int64_t row = first_row + threadIdx.x * kEach;
#pragma unroll
  for (int c = threadIdx.y; c < kTile; c += kTileRows) {
    if (row >= m || first_column + c >= n) continue;
    const auto* const from = reinterpret_cast<const std::uint32_t*>(&tile[c][threadIdx.x * kEach]);
    *reinterpret_cast<uint2*>(columns + (first_column + c) * m + row) = make_uint2(from[0], from[1]);
  }
}

template <class F>
void by_operand_dtype(at::ScalarType dtype, const F& f) {
  switch (dtype) {
    case at::kFloat: return f(float{});
    case at::kBFloat16: return f(c10::BFloat16{});
    case at::kHalf: return f(c10::Half{});
    default: throw InternalError(text("fp8 of ", dtype, ": must be float, bfloat16 or half"));
  }
}

}  // namespace

at::Tensor fp8_scale_on_cuda(const at::Tensor& any, Fp8 format) {
  const at::Tensor x = aligned(any);
  const c10::cuda::CUDAGuard guard(x.device());
  const auto stream = c10::cuda::getCurrentCUDAStream();
  const auto options = x.options().requires_grad(false);
  const at::Tensor bits = at::zeros({1}, options.dtype(at::kInt)), scale = at::zeros({2, 4}, options.dtype(at::kFloat));
  by_operand_dtype(x.scalar_type(), [&]<class S>(S) {
    require(x.numel() % Vector<S>::kSize == 0, "fp8_scale of ", x.numel(), " elements: must be a multiple of ",
            Vector<S>::kSize);
    const std::int64_t vectors = x.numel() / Vector<S>::kSize;
    const std::int64_t blocks = std::min((vectors + kThreads - 1) / kThreads, kMostBlocks);
    find_largest<S><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(x.const_data_ptr<S>(), x.numel(),
                                                                            bits.mutable_data_ptr<int>());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  choose_scale<<<1, 1, 0, stream>>>(bits.const_data_ptr<int>(), static_cast<float>(largest_fp8(format)),
                                    scale.mutable_data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return scale;
}

void to_fp8_on_cuda(const at::Tensor& any, const at::Tensor& scale, Fp8 format, const at::Tensor& rows,
                    const at::Tensor& columns) {
  const at::Tensor x = aligned(any);
  const c10::cuda::CUDAGuard guard(x.device());
  const std::int64_t m = x.size(0), n = x.size(1);
  const dim3 tiles(static_cast<unsigned>((n + kTile - 1) / kTile), static_cast<unsigned>((m + kTile - 1) / kTile));
  require(tiles.y <= 65'535, "to_fp8 of ", m, " rows: at most ", 65'535 * kTile);
  const auto bytes = [](const at::Tensor& y) {
    return y.defined() ? static_cast<__nv_fp8_storage_t*>(y.mutable_data_ptr()) : nullptr;
  };
  by_operand_dtype(x.scalar_type(), [&]<class S>(S) {
    const auto round = format == Fp8::e4m3 ? round_tiles<S, __NV_E4M3> : round_tiles<S, __NV_E5M2>;
    round<<<tiles, dim3(kTileThreads, kTileRows), 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<S>(), m, n, scale.const_data_ptr<float>(), bytes(rows), bytes(columns));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace trireme::kernels::detail
