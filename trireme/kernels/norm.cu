// RMS norm and layer norm, forward and backward, with the residual before and behind them: each tensor is read and
// written once. A block has a thread per 16 bytes of a row, which stays in registers.
#include <ATen/ops/empty_like.h>

#include "trireme/kernels/cuda_vectors.cuh"
#include "trireme/kernels/on_cuda.hpp"

namespace trireme::kernels::detail {
namespace {

constexpr int kMostThreads = 512;
constexpr std::int64_t kMostVectors = 8 * kMostThreads;
// Of an H200; fixed, so that the order of sums over rows does not depend on the GPU.
constexpr std::int64_t kMultiprocessors = 132;

template <class S, int K, bool kLayer, class W = WideOf<S>>
__global__ void __launch_bounds__(kMostThreads) norm_rows(const S* x, const S* residual, const S* weight, const S* bias,
                                                          S* sum, S* y, W* mean, W* rstd, int vectors, W eps) {
  constexpr int kSize = Vector<S>::kSize;
  __shared__ W shared[2][kMostThreads / kWarp];
  const std::int64_t width = static_cast<std::int64_t>(vectors) * kSize, row = blockIdx.x * width;
  W v[K][kSize];
  W total[1] = {0}, squares[1] = {0};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= vectors) continue;
    Vector<S> own = load_vector(x + row + i * kSize);
    if (residual) {
      const Vector<S> other = load_vector(residual + row + i * kSize);
#pragma unroll
      for (int j = 0; j < kSize; ++j)
        own.at[j] = static_cast<S>(static_cast<W>(own.at[j]) + static_cast<W>(other.at[j]));
      store_vector(sum + row + i * kSize, own);
    }
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      v[k][j] = static_cast<W>(own.at[j]);
      if (kLayer) total[0] += v[k][j];
    }
  }
  W centre = 0;
  if (kLayer) {
    block_sums(total, shared[0]);
    centre = total[0] / static_cast<W>(width);
  }
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (threadIdx.x + k * blockDim.x < vectors) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) squares[0] += (v[k][j] - centre) * (v[k][j] - centre);
    }
  block_sums(squares, shared[1]);
  const W factor = 1 / sqrt(squares[0] / static_cast<W>(width) + eps);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= vectors) continue;
    const Vector<S> w = load_vector(weight + i * kSize);
    Vector<S> b, out;
    if (kLayer) b = load_vector(bias + i * kSize);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const W scaled = (v[k][j] - centre) * factor * static_cast<W>(w.at[j]);
      out.at[j] = static_cast<S>(kLayer ? scaled + static_cast<W>(b.at[j]) : scaled);
    }
    store_vector(y + row + i * kSize, out);
  }
  if (threadIdx.x != 0) return;
  rstd[blockIdx.x] = factor;
  if (kLayer) mean[blockIdx.x] = centre;
}

/// Each block takes every gridDim.x-th group of R rows and keeps its sums for the weight and bias in registers: partial
/// [gridDim.x][1 or 2][width]. The next rows are loaded before the sums of these are waited for.
template <class S, int K, bool kLayer, class W = WideOf<S>>
__global__ void __launch_bounds__(kMostThreads)
    norm_rows_backward(const S* dy, const S* dsum, const S* x, const S* weight, const W* mean, const W* rstd, S* dx,
                       W* partial, std::int64_t rows, int vectors) {
  constexpr int kSize = Vector<S>::kSize, kSums = kLayer ? 2 : 1, R = K == 1 ? 2 : 1;
  __shared__ W shared[2][R * kSums * kMostThreads / kWarp];
  const std::int64_t width = static_cast<std::int64_t>(vectors) * kSize,
                     step = static_cast<std::int64_t>(gridDim.x) * R;
  const auto column = [](int k) { return static_cast<int>(threadIdx.x + k * blockDim.x); };
  W w[K][kSize], dweight[K][kSize], dbias[K][kSize];
  struct Rows {
    Vector<S> dy[R][K], x[R][K], dsum[R][K];
  };
  const auto load = [&](std::int64_t first) {
    Rows out;
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int k = 0; k < K; ++k) {
        const bool inside = column(k) < vectors && first + r < rows;
        const std::int64_t at = (first + r) * width + column(k) * kSize;
#pragma unroll
        for (int j = 0; j < kSize; ++j) out.dy[r][k].at[j] = out.x[r][k].at[j] = out.dsum[r][k].at[j] = S(0);
        if (!inside) continue;
        out.dy[r][k] = load_vector(dy + at);
        out.x[r][k] = load_vector(x + at);
        if (dsum) out.dsum[r][k] = load_vector(dsum + at);
      }
    return out;
  };
#pragma unroll
  for (int k = 0; k < K; ++k) {
    Vector<S> own;
    if (column(k) < vectors) own = load_vector(weight + column(k) * kSize);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      w[k][j] = column(k) < vectors ? static_cast<W>(own.at[j]) : W{0};
      dweight[k][j] = dbias[k][j] = 0;
    }
  }
  Rows next = load(static_cast<std::int64_t>(blockIdx.x) * R);
  int parity = 0;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * R; first < rows; first += step, parity ^= 1) {
    const Rows now = next;
    W sums[R * kSums] = {}, centre[R], factor[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const bool inside = first + r < rows;
      centre[r] = kLayer && inside ? mean[first + r] : W{0};
      factor[r] = inside ? rstd[first + r] : W{0};
#pragma unroll
      for (int k = 0; k < K; ++k)
#pragma unroll
        for (int j = 0; j < kSize; ++j) {
          const W d = static_cast<W>(now.dy[r][k].at[j]), g = d * w[k][j];
          const W h = (static_cast<W>(now.x[r][k].at[j]) - centre[r]) * factor[r];  // times 0 outside of the row
          dweight[k][j] += d * h;
          if (kLayer) dbias[k][j] += d;
          sums[r * kSums] += g * h;
          if (kLayer) sums[r * kSums + kSums - 1] += g;
        }
    }
    next = load(first + step);
    block_sums(sums, shared[parity]);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const W mean_gh = sums[r * kSums] / static_cast<W>(width);
      const W mean_g = kLayer ? sums[r * kSums + kSums - 1] / static_cast<W>(width) : W{0};
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (column(k) >= vectors || first + r >= rows) continue;
        Vector<S> out;
#pragma unroll
        for (int j = 0; j < kSize; ++j) {
          const W g = static_cast<W>(now.dy[r][k].at[j]) * w[k][j];
          const W h = (static_cast<W>(now.x[r][k].at[j]) - centre[r]) * factor[r];
          out.at[j] = static_cast<S>((g - mean_g - h * mean_gh) * factor[r] + static_cast<W>(now.dsum[r][k].at[j]));
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

/// Calls f(S{}, vectors per thread as a constant, is a layer norm as a constant, vectors per row, threads).
template <class F>
void with_shape(const at::Tensor& x, bool is_layer, const F& f) {
  by_float_dtype("norm", x.scalar_type(), [&]<class S>(S zero) {
    const std::int64_t vectors = x.size(-1) / Vector<S>::kSize;
    const std::int64_t threads = std::min<std::int64_t>(kMostThreads, (vectors + kWarp - 1) / kWarp * kWarp);
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
  with_shape(x, bias.defined(), [&]<class S, class K, class Layer>(S, K, Layer, int vectors, unsigned threads) {
    using W = WideOf<S>;
    norm_rows<S, K::value, Layer::value>
        <<<static_cast<unsigned>(rows), threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
            x.const_data_ptr<S>(), residual.defined() ? residual.const_data_ptr<S>() : nullptr,
            weight.const_data_ptr<S>(), bias.defined() ? bias.const_data_ptr<S>() : nullptr,
            residual.defined() ? out.sum.mutable_data_ptr<S>() : nullptr, out.y.mutable_data_ptr<S>(),
            out.mean_T.defined() ? out.mean_T.mutable_data_ptr<W>() : nullptr, out.rstd_T.mutable_data_ptr<W>(),
            vectors, static_cast<W>(eps));
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
  with_shape(x, is_layer, [&]<class S, class K, class Layer>(S, K, Layer, int vectors, unsigned threads) {
    using W = WideOf<S>;
    // As many as run at once: each has about 120 registers per thread.
    const std::int64_t blocks = std::min(rows, kMultiprocessors * std::max<std::int64_t>(1, kMostThreads / threads));
    const at::Tensor partial = at::empty({blocks, (is_layer ? 2 : 1) * width}, rstd_T.options());
    if (rows > 0) {
      norm_rows_backward<S, K::value, Layer::value>
          <<<static_cast<unsigned>(blocks), threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
              dy.const_data_ptr<S>(), dsum.defined() ? dsum.const_data_ptr<S>() : nullptr, x.const_data_ptr<S>(),
              weight.const_data_ptr<S>(), is_layer ? mean_T.const_data_ptr<W>() : nullptr, rstd_T.const_data_ptr<W>(),
              out.dx.mutable_data_ptr<S>(), partial.mutable_data_ptr<W>(), rows, vectors);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    const at::Tensor sums = summed_rows<S>(partial, x.scalar_type());
    out.dweight = sums.narrow(0, 0, width);
    if (is_layer) out.dbias = sums.narrow(0, width, width);
  });
  return out;
}

}  // namespace trireme::kernels::detail
