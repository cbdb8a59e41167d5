// rope.cpp as a CUDA kernel: a thread rotates 16 bytes of the first half of a head and those of the second.
#include <ATen/ops/empty_like.h>

#include "trireme/kernels/rows/cuda_vectors.cuh"
#include "trireme/kernels/rows/on_cuda.hpp"

namespace trireme::kernels::detail {
namespace {

constexpr int kThreads = 256;

/// x [T][heads][2][vectors], cos and sin [T][vectors].
template <class S, class W = WideOf<S>>
__global__ void rotate(const S* x, const W* cos, const W* sin, S* y, std::int64_t all, int heads, int rotated,
                       int vectors, W sign) {
  constexpr int kSize = Vector<S>::kSize;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= all) return;
  const std::int64_t in_head = i % vectors, head_of_all = i / vectors;
  const std::int64_t first = (2 * head_of_all * vectors + in_head) * kSize, second = first + vectors * kSize;
  Vector<S> a = load_vector(x + first), b = load_vector(x + second);
  if (head_of_all % heads < rotated) {
    const std::int64_t angle = (head_of_all / heads * vectors + in_head) * kSize;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const W c = cos[angle + j], s = sin[angle + j] * sign, u = static_cast<W>(a.at[j]), v = static_cast<W>(b.at[j]);
      a.at[j] = static_cast<S>(u * c - v * s);
      b.at[j] = static_cast<S>(v * c + u * s);
    }
  }
  store_vector(y + first, a);
  store_vector(y + second, b);
}

}  // namespace

bool has_rope_on_cuda(const at::Tensor& x) { return x.is_cuda() && has_vectors(x, x.size(2) / 2); }

at::Tensor rope_on_cuda(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, std::int64_t rotated_heads,
                        bool inverse) {
  const at::Tensor y = at::empty_like(x);
  if (x.numel() == 0) return y;
  const c10::cuda::CUDAGuard guard(x.device());
  by_float_dtype("rope", x.scalar_type(), [&]<class S>(S) {
    using W = WideOf<S>;
    const std::int64_t vectors = x.size(2) / 2 / Vector<S>::kSize, all = x.size(0) * x.size(1) * vectors;
    rotate<S>
        <<<static_cast<unsigned>((all + kThreads - 1) / kThreads), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
            x.const_data_ptr<S>(), cos.const_data_ptr<W>(), sin.const_data_ptr<W>(), y.mutable_data_ptr<S>(), all,
            static_cast<int>(x.size(1)), static_cast<int>(rotated_heads), static_cast<int>(vectors),
            inverse ? W{-1} : W{1});
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return y;
}

}  // namespace trireme::kernels::detail
