// expert_rows.cpp as CUDA kernels: a block of threads per token.
#include "trireme/kernels/rows/cuda_vectors.cuh"
#include "trireme/kernels/rows/on_cuda.hpp"

namespace trireme::kernels::detail {
namespace {

constexpr int kThreads = 128;
static_assert(kThreads % kWarp == 0);

template <class S>
__global__ void spread(const S* x, const std::int64_t* place, S* rows, int k, std::int64_t vectors) {
  constexpr int kSize = Vector<S>::kSize;
  const std::int64_t t = blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < vectors; i += kThreads) {
    const Vector<S> in = load_vector(x + (t * vectors + i) * kSize);
    for (int j = 0; j < k; ++j) store_vector(rows + (place[t * k + j] * vectors + i) * kSize, in);
  }
}

/// `weights` null: ones.
template <class S, class W = WideOf<S>>
__global__ void gather(const S* rows, const std::int64_t* place, const W* weights, S* y, int k, std::int64_t vectors) {
  constexpr int kSize = Vector<S>::kSize;
  const std::int64_t t = blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < vectors; i += kThreads) {
    W sums[kSize] = {};
    for (int j = 0; j < k; ++j) {
      const W weight = weights == nullptr ? W(1) : weights[t * k + j];
      const Vector<S> in = load_vector(rows + (place[t * k + j] * vectors + i) * kSize);
#pragma unroll
      for (int n = 0; n < kSize; ++n) sums[n] += weight * static_cast<W>(in.at[n]);
    }
    Vector<S> out;
#pragma unroll
    for (int n = 0; n < kSize; ++n) out.at[n] = static_cast<S>(sums[n]);
    store_vector(y + (t * vectors + i) * kSize, out);
  }
}

template <class S, class W = WideOf<S>>
__global__ void gather_backward(const S* dy, const S* rows, const std::int64_t* place, const W* weights, S* drows,
                                W* dweights, int k, std::int64_t vectors) {
  constexpr int kSize = Vector<S>::kSize;
  __shared__ W of_warps[kThreads / kWarp];
  const std::int64_t t = blockIdx.x;
  for (int j = 0; j < k; ++j) {
    const std::int64_t row = place[t * k + j];
    const W weight = weights[t * k + j];
    W product = 0;
    for (std::int64_t i = threadIdx.x; i < vectors; i += kThreads) {
      const Vector<S> d = load_vector(dy + (t * vectors + i) * kSize);
      const Vector<S> in = load_vector(rows + (row * vectors + i) * kSize);
      Vector<S> out;
#pragma unroll
      for (int n = 0; n < kSize; ++n) {
        product += static_cast<W>(d.at[n]) * static_cast<W>(in.at[n]);
        out.at[n] = static_cast<S>(weight * static_cast<W>(d.at[n]));
      }
      store_vector(drows + (row * vectors + i) * kSize, out);
    }
    product = warp_sum(product);
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = product;
    __syncthreads();
    if (threadIdx.x == 0) {
      W sum = 0;
      for (int w = 0; w < kThreads / kWarp; ++w) sum += of_warps[w];
      dweights[t * k + j] = sum;
    }
    __syncthreads();
  }
}

/// Calls f(S{}, blocks, k, vectors per row) for rows like those of x.
template <class F>
void over_tokens(const at::Tensor& x, const at::Tensor& place_Tk, const F& f) {
  if (place_Tk.numel() == 0 || x.size(1) == 0) return;
  const c10::cuda::CUDAGuard guard(x.device());
  by_float_dtype("rows of experts", x.scalar_type(), [&]<class S>(S zero) {
    f(zero, static_cast<unsigned>(place_Tk.size(0)), static_cast<int>(place_Tk.size(1)), x.size(1) / Vector<S>::kSize);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

}  // namespace

bool has_expert_rows_on_cuda(const at::Tensor& x) { return x.is_cuda() && has_vectors(x, x.size(1)); }

at::Tensor spread_rows_on_cuda(const at::Tensor& x_TD, const at::Tensor& place_Tk) {
  const at::Tensor rows = at::empty({place_Tk.numel(), x_TD.size(1)}, x_TD.options().requires_grad(false));
  over_tokens(x_TD, place_Tk, [&]<class S>(S, unsigned blocks, int k, std::int64_t vectors) {
    spread<S><<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x_TD.const_data_ptr<S>(), place_Tk.const_data_ptr<std::int64_t>(), rows.mutable_data_ptr<S>(), k, vectors);
  });
  return rows;
}

at::Tensor gather_rows_on_cuda(const at::Tensor& rows_RD, const at::Tensor& place_Tk, const at::Tensor& weights_Tk) {
  const at::Tensor y = at::empty({place_Tk.size(0), rows_RD.size(1)}, rows_RD.options().requires_grad(false));
  over_tokens(rows_RD, place_Tk, [&]<class S>(S, unsigned blocks, int k, std::int64_t vectors) {
    using W = WideOf<S>;
    gather<S><<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        rows_RD.const_data_ptr<S>(), place_Tk.const_data_ptr<std::int64_t>(),
        weights_Tk.defined() ? weights_Tk.const_data_ptr<W>() : nullptr, y.mutable_data_ptr<S>(), k, vectors);
  });
  return y;
}

void gather_rows_backward_on_cuda(const at::Tensor& dy_TD, const at::Tensor& rows_RD, const at::Tensor& place_Tk,
                                  const at::Tensor& weights_Tk, const at::Tensor& drows_RD,
                                  const at::Tensor& dweights_Tk) {
  over_tokens(rows_RD, place_Tk, [&]<class S>(S, unsigned blocks, int k, std::int64_t vectors) {
    using W = WideOf<S>;
    gather_backward<S><<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        dy_TD.const_data_ptr<S>(), rows_RD.const_data_ptr<S>(), place_Tk.const_data_ptr<std::int64_t>(),
        weights_Tk.const_data_ptr<W>(), drows_RD.mutable_data_ptr<S>(), dweights_Tk.mutable_data_ptr<W>(), k, vectors);
  });
}

}  // namespace trireme::kernels::detail
