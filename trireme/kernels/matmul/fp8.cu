// fp8.cpp as CUDA kernels: the largest elements, and one pass that rounds a matrix and transposes it.
#include <ATen/ops/zeros.h>
#include <cuda_fp8.h>

#include "trireme/kernels/matmul/fp8_cuda.hpp"
#include "trireme/kernels/rows/cuda_vectors.cuh"
#include "trireme/kernels/rows/on_cuda.hpp"

namespace trireme::kernels::detail {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1056;

/// The bits of a float that is not negative compare as integers.
__device__ void raise(float* largest, float x) {
  if (x > 0) atomicMax(reinterpret_cast<int*>(largest), __float_as_int(x));
}

template <class S>
__global__ void find_largest(const S* x, std::int64_t n, float* largest) {
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
  raise(largest, most);
}

/// For each of n tensors or rows: the largest power of two that keeps its largest element within the format, and its
/// inverse in the next row of `scale`.
__global__ void choose_scales(const float* largest, std::int64_t n, float limit, float* scale, std::int64_t width) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  int exponent = 0;
  if (largest[i] > 0) {
    // Not by log2, which is not exact: the quotient lies in [2^exponent, 2^(exponent + 1)).
    const float quotient = limit / largest[i];
    if (isfinite(quotient)) frexpf(quotient, &exponent);
    exponent = isfinite(quotient) ? min(126, max(-126, exponent - 1)) : 126;
  }
  scale[i] = ldexpf(1.0F, exponent);
  scale[width + i] = ldexpf(1.0F, -exponent);
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

/// The largest elements of all rows and columns. A thread has the same eight columns of two rows of a tile.
template <class S>
__global__ void find_largest_of_lines(const S* x, std::int64_t m, std::int64_t n, float* of_rows, float* of_columns) {
  __shared__ float shared[kTile];
  const int thread = threadIdx.y * kTileThreads + threadIdx.x;
  if (thread < kTile) shared[thread] = 0;
  __syncthreads();
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kTile + threadIdx.x * kEach;
  float of_column[kEach] = {};
#pragma unroll
  for (int r = threadIdx.y; r < kTile; r += kTileRows) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kTile + r;
    float wide[kEach] = {}, most = 0;
    if (row < m && column < n) load_eight(x + row * n + column, wide);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float a = isfinite(wide[j]) ? fabsf(wide[j]) : 0.0F;
      most = fmaxf(most, a);
      of_column[j] = fmaxf(of_column[j], a);
    }
    for (int step = kTileThreads / 2; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0U, most, step));
    if (threadIdx.x == 0 && row < m) raise(of_rows + row, most);
  }
#pragma unroll
  for (int j = 0; j < kEach; ++j) raise(shared + threadIdx.x * kEach + j, of_column[j]);
  __syncthreads();
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * kTile + thread;
  if (thread < kTile && own < n) raise(of_columns + own, shared[thread]);
}

template <__nv_fp8_interpretation_t kFormat>
__device__ __nv_fp8_storage_t rounded(float x, float factor) {
  // Infinity becomes NaN, so that what overflowed is noticed.
  return __nv_cvt_float_to_fp8(isinf(x) ? NAN : x * factor, __NV_SATFINITE, kFormat);
}

/// x [m, n] into rows [m, n] and columns [n, m], each of which may be null. m and n are multiples of 16: of a tile, a
/// thread has eight columns that exist, or none. kOfRows: with a factor for each row of `rows` and of `columns`.
template <class S, __nv_fp8_interpretation_t kFormat, bool kOfRows>
__global__ void round_tiles(const S* x, std::int64_t m, std::int64_t n, const float* row_factors,
                            const float* column_factors, __nv_fp8_storage_t* rows, __nv_fp8_storage_t* columns,
                            float* largest) {
  __shared__ __align__(16) __nv_fp8_storage_t tile[kTile][kColumnBytes];
  float most = 0;
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
    const float factor = row_factors[kOfRows ? row : 0];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      out.at[j] = rounded<kFormat>(wide[j], factor);
      if (isfinite(wide[j])) most = fmaxf(most, fabsf(wide[j]));
    }
    if (rows) *reinterpret_cast<Eight*>(rows + row * n + column) = out;
    if (columns) {
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        tile[threadIdx.x * kEach + j][r] = kOfRows ? rounded<kFormat>(wide[j], column_factors[column + j]) : out.at[j];
    }
  }
  if (largest) {
    for (int step = kWarp / 2; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0U, most, step));
    if ((threadIdx.y * kTileThreads + threadIdx.x) % kWarp == 0) raise(largest, most);
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

dim3 tiles_of(const at::Tensor& x) {
  const std::int64_t down = (x.size(0) + kTile - 1) / kTile, across = (x.size(1) + kTile - 1) / kTile;
  require(down <= 65'535, "to_fp8 of ", x.size(0), " rows: at most ", 65'535 * kTile);
  return {static_cast<unsigned>(across), static_cast<unsigned>(down)};
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

at::Tensor fp8_largest_on_cuda(const at::Tensor& any) {
  const at::Tensor x = aligned(any);
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor largest = at::zeros({1}, x.options().dtype(at::kFloat).requires_grad(false));
  by_operand_dtype(x.scalar_type(), [&]<class S>(S) {
    require(x.numel() % Vector<S>::kSize == 0, "fp8_scale of ", x.numel(), " elements: must be a multiple of ",
            Vector<S>::kSize);
    const std::int64_t vectors = x.numel() / Vector<S>::kSize;
    const std::int64_t blocks = std::min((vectors + kThreads - 1) / kThreads, kMostBlocks);
    find_largest<S><<<static_cast<unsigned>(blocks), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<S>(), x.numel(), largest.mutable_data_ptr<float>());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return largest;
}

Fp8Largest fp8_largest_of_lines_on_cuda(const at::Tensor& any) {
  const at::Tensor x = aligned(any);
  const c10::cuda::CUDAGuard guard(x.device());
  const auto options = x.options().dtype(at::kFloat).requires_grad(false);
  const Fp8Largest out{at::zeros({x.size(0)}, options), at::zeros({x.size(1)}, options)};
  by_operand_dtype(x.scalar_type(), [&]<class S>(S) {
    find_largest_of_lines<S><<<tiles_of(x), dim3(kTileThreads, kTileRows), 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<S>(), x.size(0), x.size(1), out.of_rows.mutable_data_ptr<float>(),
        out.of_columns.mutable_data_ptr<float>());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

at::Tensor fp8_scales_on_cuda(const at::Tensor& largest, Fp8 format) {
  const c10::cuda::CUDAGuard guard(largest.device());
  const std::int64_t n = largest.numel(), width = std::max<std::int64_t>(n, 4);
  const at::Tensor scale = at::zeros({2, width}, largest.options());
  choose_scales<<<static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads, 0,
                  c10::cuda::getCurrentCUDAStream()>>>(largest.const_data_ptr<float>(), n,
                                                       static_cast<float>(largest_of_format(format)),
                                                       scale.mutable_data_ptr<float>(), width);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return scale;
}

void to_fp8_on_cuda(const at::Tensor& any, Fp8 format, const Fp8Matrix& out, const at::Tensor& largest) {
  const at::Tensor x = aligned(any);
  const c10::cuda::CUDAGuard guard(x.device());
  const std::int64_t m = x.size(0), n = x.size(1);
  const auto bytes = [](const at::Tensor& y) {
    return y.defined() ? static_cast<__nv_fp8_storage_t*>(y.mutable_data_ptr()) : nullptr;
  };
  by_operand_dtype(x.scalar_type(), [&]<class S>(S) {
    const auto of_rows = format == Fp8::e4m3 ? round_tiles<S, __NV_E4M3, true> : round_tiles<S, __NV_E5M2, true>;
    const auto of_tensor = format == Fp8::e4m3 ? round_tiles<S, __NV_E4M3, false> : round_tiles<S, __NV_E5M2, false>;
    const auto round = out.scale.is_same(out.column_scale) ? of_tensor : of_rows;
    round<<<tiles_of(x), dim3(kTileThreads, kTileRows), 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<S>(), m, n, out.scale.const_data_ptr<float>(), out.column_scale.const_data_ptr<float>(),
        bytes(out.rows), bytes(out.columns), largest.defined() ? largest.mutable_data_ptr<float>() : nullptr);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace trireme::kernels::detail
