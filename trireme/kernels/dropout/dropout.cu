// dropout.cpp as a CUDA kernel: a thread computes one Philox block and decides four adjacent elements of a row.
#include <ATen/Dispatch.h>

#include "trireme/kernels/dropout/dropout.hpp"
#include "trireme/kernels/rows/cuda_vectors.cuh"

namespace trireme::kernels::detail {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 20;  // the grid-stride loop covers the rest

/// A DropoutPlace for the kernel.
struct Place {
  const std::int64_t* rows;
  std::int64_t num_rows, columns, row_width, first_column;

  /// The maximum number of blocks that a row's elements can overlap, for any start.
  __host__ __device__ std::int64_t blocks_a_row() const { return (columns + 3) / 4 + 1; }
};

/// f(local index, kept) for all elements.
template <class F>
__global__ void for_decisions(Place place, DropoutKey key, std::uint32_t threshold, F f) {
  if (key.purpose_on_device) key.purpose = static_cast<std::uint64_t>(*key.purpose_on_device);
  const std::int64_t blocks = place.blocks_a_row(), all = blocks * place.num_rows;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += stride) {
    const std::int64_t t = i / blocks;
    const std::int64_t start = place.rows[t] * place.row_width + place.first_column;
    const std::int64_t block = start / 4 + i % blocks;
    if (block * 4 >= start + place.columns) continue;
    const auto words = dropout_block(key, static_cast<std::uint64_t>(block));
    for (int k = 0; k < 4; ++k) {
      const std::int64_t j = block * 4 + k - start;
      if (j >= 0 && j < place.columns) f(t * place.columns + j, words[k] >= threshold);
    }
  }
}

template <class F>
void launch(const DropoutPlace& place, std::int64_t columns, double p, const DropoutKey& key, const F& f) {
  const Place on_device{place.rows.const_data_ptr<std::int64_t>(), place.rows.size(0), columns, place.row_width,
                        place.first_column};
  const std::int64_t all = on_device.num_rows * on_device.blocks_a_row();
  if (all == 0 || columns == 0) return;
  const c10::cuda::CUDAGuard guard(place.rows.device());
  const std::int64_t blocks = std::min((all + kThreads - 1) / kThreads, kMostBlocks);
  for_decisions<<<static_cast<unsigned>(blocks), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      on_device, key, dropout_threshold(p), f);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

/// Rows whose elements come in whole vectors, each with whole Philox blocks: a warp per row, 16 bytes per access.
template <class S, class W = WideOf<S>>
__global__ void scale_vectors(const S* x, const S* residual, S* y, Place place, DropoutKey key, std::uint32_t threshold,
                              W scale) {
  constexpr int kSize = Vector<S>::kSize, kBlock = 4;
  static_assert(kSize % kBlock == 0 || kBlock % kSize == 0);
  if (key.purpose_on_device) key.purpose = static_cast<std::uint64_t>(*key.purpose_on_device);
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.y;
  if (t >= place.num_rows) return;
  const std::int64_t row = t * place.columns, start = place.rows[t] * place.row_width + place.first_column;
#pragma unroll 2
  for (std::int64_t i = threadIdx.x * kSize; i < place.columns; i += kWarp * kSize) {
    Vector<S> v = load_vector(x + row + i), more{};
    if (residual) more = load_vector(residual + row + i);
#pragma unroll
    for (int first = 0; first < kSize; first += kBlock) {
      const std::int64_t element = start + i + first;
      const auto words = dropout_block(key, static_cast<std::uint64_t>(element) / kBlock);
#pragma unroll
      for (int k = 0; k < kBlock && first + k < kSize; ++k) {
        // An f64 vector is half of a block.
        const std::uint32_t word = words[(kSize < kBlock ? element % kBlock : 0) + k];
        // A product, so that NaN and infinity propagate even from dropped elements.
        const W kept = static_cast<W>(v.at[first + k]) * (word >= threshold ? scale : W{0});
        v.at[first + k] = static_cast<S>(residual ? static_cast<W>(more.at[first + k]) + kept : kept);
      }
    }
    store_vector(y + row + i, v);
  }
}

bool has_whole_vectors(const at::Tensor& x, const DropoutPlace& place, const at::Tensor& y) {
  const std::int64_t size = 16 / x.element_size(), unit = std::max<std::int64_t>(size, 4);
  return x.size(1) % size == 0 && place.row_width % unit == 0 && place.first_column % unit == 0 &&
         (size >= 4 || x.size(1) % unit == 0) && has_vectors(x, x.size(1)) && has_vectors(y, y.size(1));
}

template <class S, class W>
struct Scale {
  const S* x;
  S* y;
  W scale;
  __device__ void operator()(std::int64_t i, bool kept) const {
    y[i] = static_cast<S>(static_cast<W>(x[i]) * (kept ? scale : W{0}));
  }
};

struct Mark {
  bool* mask;
  __device__ void operator()(std::int64_t i, bool kept) const { mask[i] = kept; }
};

}  // namespace

void dropout_on_cuda(const at::Tensor& x, double p, const DropoutKey& key, const DropoutPlace& place,
                     const at::Tensor& residual, const at::Tensor& y) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "dropout", [&] {
    using W = WideOf<scalar_t>;
    if (has_whole_vectors(x, place, y) && has_vectors(residual, x.size(1)) && x.numel() > 0) {
      const c10::cuda::CUDAGuard guard(x.device());
      constexpr std::int64_t kRows = kThreads / kWarp;
      scale_vectors<scalar_t><<<static_cast<unsigned>((place.rows.size(0) + kRows - 1) / kRows), dim3(kWarp, kRows), 0,
                                c10::cuda::getCurrentCUDAStream()>>>(
          x.const_data_ptr<scalar_t>(), residual.defined() ? residual.const_data_ptr<scalar_t>() : nullptr,
          y.mutable_data_ptr<scalar_t>(),
          Place{place.rows.const_data_ptr<std::int64_t>(), place.rows.size(0), x.size(1), place.row_width,
                place.first_column},
          key, dropout_threshold(p), static_cast<W>(1 / (1 - p)));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
      return;
    }
    launch(
        place, x.size(1), p, key,
        Scale<scalar_t, W>{x.const_data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>(), static_cast<W>(1 / (1 - p))});
    if (residual.defined()) at::Tensor(y).add_(residual);
  });
}

void keep_mask_on_cuda(double p, const DropoutKey& key, const DropoutPlace& place, const at::Tensor& mask) {
  launch(place, mask.size(1), p, key, Mark{mask.mutable_data_ptr<bool>()});
}

}  // namespace trireme::kernels::detail
