// RMS norm and layer norm, forward and backward, with the residual before and behind them: each tensor is read and
// written once, and a row stays in registers meanwhile. Forward: a warp per row, or a block per long row. Backward: a
// block with a thread per 16 bytes of a row, so that few registers hold the sums for weight and bias.
#include <ATen/ops/empty_like.h>

#include "trireme/kernels/rows/cuda_vectors.cuh"
#include "trireme/kernels/rows/on_cuda.hpp"

namespace trireme::kernels::detail {
namespace {

constexpr int kMostThreads = 512;
constexpr std::int64_t kMostVectors = 8 * kMostThreads;
constexpr std::int64_t kThreadsAtOnce = 768;  // of backward, per multiprocessor
constexpr int kWarpsForward = 4;
constexpr std::int64_t kShortVectors = 8 * kWarp;  // of a row that one warp takes
// Of an H200; fixed, so that the order of sums over rows does not depend on the GPU.
constexpr std::int64_t kMultiprocessors = 132;

/// Thread `first` of those that share the row has every `threads`-th vector; `sum_all` adds up a number over them.
template <class S, int K, bool kLayer, class W, class SumAll>
__device__ void norm_row(const S* x, const S* residual, const S* weight, const S* bias, S* sum, S* y, W* mean, W* rstd,
                         std::int64_t row, int vectors, W eps, int first, int threads, const SumAll& sum_all) {
  constexpr int kSize = Vector<S>::kSize;
  const std::int64_t width = static_cast<std::int64_t>(vectors) * kSize, begin = row * width;
  Words<S> v[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int i = first + k * threads;
    if (i < vectors) v[k] = load_words(x + begin + i * kSize);
  }
  if (residual) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int i = first + k * threads;
      if (i >= vectors) continue;
      const Words<S> other = load_words(residual + begin + i * kSize);
      Vector<S> both;
#pragma unroll
      for (int j = 0; j < kSize; ++j) both.at[j] = static_cast<S>(v[k].element(j) + other.element(j));
      store_vector(sum + begin + i * kSize, both);
      v[k] = load_words(both.at);
    }
  }
  W centre = 0, squares = 0;
  if (kLayer) {
    W total = 0;
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (first + k * threads < vectors) {
#pragma unroll
        for (int j = 0; j < kSize; ++j) total += v[k].element(j);
      }
    centre = sum_all(total, 0) / static_cast<W>(width);
  }
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (first + k * threads < vectors) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const W from_centre = v[k].element(j) - centre;
        squares += from_centre * from_centre;
      }
    }
  const W factor = 1 / sqrt(sum_all(squares, 1) / static_cast<W>(width) + eps);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int i = first + k * threads;
    if (i >= vectors) continue;
    const Words<S> w = load_words(weight + i * kSize);
    Words<S> b;
    Vector<S> out;
    if (kLayer) b = load_words(bias + i * kSize);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const W scaled = (v[k].element(j) - centre) * factor * w.element(j);
      out.at[j] = static_cast<S>(kLayer ? scaled + b.element(j) : scaled);
    }
    store_vector(y + begin + i * kSize, out);
  }
  if (first != 0) return;
  rstd[row] = factor;
  if (kLayer) mean[row] = centre;
}

/// A warp per row.
template <class S, int K, bool kLayer, class W = WideOf<S>>
__global__ void __launch_bounds__(kWarp* kWarpsForward)
    norm_short_rows(const S* x, const S* residual, const S* weight, const S* bias, S* sum, S* y, W* mean, W* rstd,
                    std::int64_t rows, int vectors, W eps) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarpsForward + threadIdx.y;
  if (row >= rows) return;
  norm_row<S, K, kLayer, W>(x, residual, weight, bias, sum, y, mean, rstd, row, vectors, eps, threadIdx.x, kWarp,
                            [](W own, int) { return warp_sum(own); });
}

/// A block per row.
template <class S, int K, bool kLayer, class W = WideOf<S>>
__global__ void __launch_bounds__(kMostThreads) norm_rows(const S* x, const S* residual, const S* weight, const S* bias,
                                                          S* sum, S* y, W* mean, W* rstd, int vectors, W eps) {
  __shared__ W shared[2][kMostThreads / kWarp];
  norm_row<S, K, kLayer, W>(x, residual, weight, bias, sum, y, mean, rstd, blockIdx.x, vectors, eps, threadIdx.x,
                            blockDim.x, [&](W own, int turn) {
                              W one[1] = {own};
                              block_sums(one, shared[turn]);
                              return one[0];
                            });
}

/// Each block takes every gridDim.x-th group of R rows and keeps its sums for the weight and bias in registers: partial
/// [gridDim.x][1 or 2][width].
template <class S, int K, bool kLayer, class W = WideOf<S>>
__global__ void __launch_bounds__(kMostThreads)
    norm_rows_backward(const S* dy, const S* dsum, const S* x, const S* weight, const W* mean, const W* rstd, S* dx,
                       W* partial, std::int64_t rows, int vectors) {
  constexpr int kSize = Vector<S>::kSize, kSums = kLayer ? 2 : 1, R = K == 1 ? 2 : 1;
  __shared__ W shared[2][R * kSums * kMostThreads / kWarp];
  const std::int64_t width = static_cast<std::int64_t>(vectors) * kSize,
                     step = static_cast<std::int64_t>(gridDim.x) * R;
  const auto column = [](int k) { return static_cast<int>(threadIdx.x + k * blockDim.x); };
  Words<S> w[K];
  W dweight[K][kSize] = {}, dbias[K][kSize] = {};
#pragma unroll
  for (int k = 0; k < K; ++k) w[k] = column(k) < vectors ? load_words(weight + column(k) * kSize) : Words<S>();
  const W inverse = W{1} / static_cast<W>(width);
  int parity = 0;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * R; first < rows; first += step, parity ^= 1) {
    Words<S> of_dy[R][K], of_x[R][K], of_dsum[R][K];
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (column(k) >= vectors || first + r >= rows) continue;
        const std::int64_t at = (first + r) * width + column(k) * kSize;
        of_dy[r][k] = load_words(dy + at);
        of_x[r][k] = load_words(x + at);
        if (dsum) of_dsum[r][k] = load_words(dsum + at);
      }
    W sums[R * kSums] = {}, centre[R], factor[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const bool inside = first + r < rows;
      centre[r] = kLayer && inside ? mean[first + r] : W{0};
      factor[r] = inside ? rstd[first + r] : W{0};
#pragma unroll
      for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int j = 0; j < kSize; ++j) {
          const W d = of_dy[r][k].element(j), g = d * w[k].element(j);
          const W h = (of_x[r][k].element(j) - centre[r]) * factor[r];  // times 0 outside of the row
          dweight[k][j] += d * h;
          if (kLayer) dbias[k][j] += d;
          sums[r * kSums] += g * h;
          if (kLayer) sums[r * kSums + kSums - 1] += g;
        }
        of_dy[r][k].forget();
        of_x[r][k].forget();
      }
    }
    block_sums(sums, shared[parity]);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const W mean_gh = sums[r * kSums] * inverse;
      const W mean_g = kLayer ? sums[r * kSums + kSums - 1] * inverse : W{0};
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (column(k) >= vectors || first + r >= rows) continue;
        Vector<S> out;
#pragma unroll
        for (int j = 0; j < kSize; ++j) {
          const W g = of_dy[r][k].element(j) * w[k].element(j);
          const W h = (of_x[r][k].element(j) - centre[r]) * factor[r];
          out.at[j] = static_cast<S>((g - mean_g - h * mean_gh) * factor[r] + of_dsum[r][k].element(j));
        }
        store_vector(dx + (first + r) * width + column(k) * kSize, out);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (column(k) >= vectors) continue;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      W* const to = partial + static_cast<std::int64_t>(blockIdx.x) * kSums * width + column(k) * kSize + j;
      to[0] = dweight[k][j];
      if (kLayer) to[width] = dbias[k][j];
    }
  }
}

/// Calls f(S{}, vectors per thread as a constant, is a layer norm as a constant, vectors per row, threads per row).
template <class F>
void with_shape(const at::Tensor& x, bool is_layer, std::int64_t most_threads, const F& f) {
  by_float_dtype("norm", x.scalar_type(), [&]<class S>(S zero) {
    const std::int64_t vectors = x.size(-1) / Vector<S>::kSize;
    const std::int64_t threads = std::min(most_threads, (vectors + kWarp - 1) / kWarp * kWarp);
    const auto with = [&](auto k) {
      if (is_layer)
        f(zero, k, std::true_type{}, static_cast<int>(vectors), static_cast<unsigned>(threads));
      else
        f(zero, k, std::false_type{}, static_cast<int>(vectors), static_cast<unsigned>(threads));
    };
    if (vectors <= threads) return with(std::integral_constant<int, 1>{});
    if (vectors <= 2 * threads) return with(std::integral_constant<int, 2>{});
    if (vectors <= 4 * threads) return with(std::integral_constant<int, 4>{});
    with(std::integral_constant<int, 8>{});
  });
}

}  // namespace

bool has_norm_on_cuda(const at::Tensor& x) {
  return x.is_cuda() && x.size(-1) > 0 && has_vectors(x, x.size(-1)) &&
         x.size(-1) * x.element_size() / 16 <= kMostVectors;
}

NormResult norm_on_cuda(const at::Tensor& x, const at::Tensor& any_residual, const at::Tensor& any_weight,
                        const at::Tensor& any_bias, double eps) {
  const at::Tensor residual = aligned(any_residual), weight = aligned(any_weight), bias = aligned(any_bias);
  const std::int64_t rows = x.numel() / x.size(-1);
  const auto wide = x.options().dtype(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).requires_grad(false);
  NormResult out{.sum = residual.defined() ? at::empty_like(x) : x, .y = at::empty_like(x)};
  out.rstd_T = at::empty({rows}, wide);
  if (bias.defined()) out.mean_T = at::empty({rows}, wide);
  if (rows == 0) return out;
  const c10::cuda::CUDAGuard guard(x.device());
  const bool is_short = x.size(-1) * x.element_size() / 16 <= kShortVectors;
  with_shape(x, bias.defined(), is_short ? kWarp : kMostThreads,
             [&]<class S, class K, class Layer>(S, K, Layer, int vectors, unsigned threads) {
               using W = WideOf<S>;
               const auto stream = c10::cuda::getCurrentCUDAStream();
               const S* const from = x.const_data_ptr<S>();
               const S* const more = residual.defined() ? residual.const_data_ptr<S>() : nullptr;
               const S* const scale = weight.const_data_ptr<S>();
               const S* const shift = bias.defined() ? bias.const_data_ptr<S>() : nullptr;
               S* const sum = residual.defined() ? out.sum.mutable_data_ptr<S>() : nullptr;
               S* const y = out.y.mutable_data_ptr<S>();
               W* const mean = out.mean_T.defined() ? out.mean_T.mutable_data_ptr<W>() : nullptr;
               W* const rstd = out.rstd_T.mutable_data_ptr<W>();
               const W wide_eps = static_cast<W>(eps);
               if (is_short)
                 norm_short_rows<S, K::value, Layer::value>
                     <<<static_cast<unsigned>((rows + kWarpsForward - 1) / kWarpsForward), dim3(kWarp, kWarpsForward),
                        0, stream>>>(from, more, scale, shift, sum, y, mean, rstd, rows, vectors, wide_eps);
               else
                 norm_rows<S, K::value, Layer::value><<<static_cast<unsigned>(rows), threads, 0, stream>>>(
                     from, more, scale, shift, sum, y, mean, rstd, vectors, wide_eps);
               C10_CUDA_KERNEL_LAUNCH_CHECK();
             });
  return out;
}

NormGradients norm_backward_on_cuda(const at::Tensor& any_dy, const at::Tensor& any_dsum, const at::Tensor& x,
                                    const at::Tensor& any_weight, const at::Tensor& mean_T, const at::Tensor& rstd_T) {
  const at::Tensor dy = aligned(any_dy), dsum = aligned(any_dsum), weight = aligned(any_weight);
  const std::int64_t width = x.size(-1), rows = x.numel() / width;
  const bool is_layer = mean_T.defined();
  NormGradients out{.dx = at::empty_like(x)};
  const c10::cuda::CUDAGuard guard(x.device());
  with_shape(x, is_layer, kMostThreads, [&]<class S, class K, class Layer>(S, K, Layer, int vectors, unsigned threads) {
    using W = WideOf<S>;
    // As many as run at once: each has about 80 registers per thread.
    const std::int64_t blocks = std::min(rows, kMultiprocessors * std::max<std::int64_t>(1, kThreadsAtOnce / threads));
    const at::Tensor partial = at::empty({blocks, (is_layer ? 2 : 1) * width}, rstd_T.options());
    out.partial_dweight = partial.narrow(1, 0, width);
    if (is_layer) out.partial_dbias = partial.narrow(1, width, width);
    if (rows == 0) return;
    norm_rows_backward<S, K::value, Layer::value>
        <<<static_cast<unsigned>(blocks), threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
            dy.const_data_ptr<S>(), dsum.defined() ? dsum.const_data_ptr<S>() : nullptr, x.const_data_ptr<S>(),
            weight.const_data_ptr<S>(), is_layer ? mean_T.const_data_ptr<W>() : nullptr, rstd_T.const_data_ptr<W>(),
            out.dx.mutable_data_ptr<S>(), partial.mutable_data_ptr<W>(), rows, vectors);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return out;
}

void add_up_on_cuda(const at::Tensor& out, const at::Tensor& partial, bool add) {
  const c10::cuda::CUDAGuard guard(partial.device());
  partial.scalar_type() == at::kDouble ? sum_partial_rows_into<double>(out, partial, add)
                                       : sum_partial_rows_into<float>(out, partial, add);
}

}  // namespace trireme::kernels::detail
