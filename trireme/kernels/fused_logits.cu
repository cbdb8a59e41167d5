// fused_logits.hpp as CUDA kernels: one block per row. Memory-bound, so each thread reads 16 bytes at a time.
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/fused_logits.hpp"

namespace trireme::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kWarp = 32;

template <class S>
using WideOf = std::conditional_t<std::is_same_v<S, double>, double, float>;

template <class S>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(S);
  S at[kSize];
};

__device__ float exponential(float x) { return expf(x); }
__device__ double exponential(double x) { return exp(x); }

/// The maximum of some logits, the sum of exp(logit - maximum), and of the logits.
template <class W>
struct Stats {
  W max = -INFINITY, sum = 0, plain = 0;

  __device__ void add(W x) {
    plain += x;
    if (x > max) {
      sum = sum * exponential(max - x) + 1;
      max = x;
    } else {
      sum += x == -INFINITY ? W{0} : exponential(x - max);  // also NaN, which stays in the sum
    }
  }
  __device__ void merge(const Stats& other) {
    plain += other.plain;
    const W both = other.max > max ? other.max : max;
    // A maximum of minus infinity: no logits, or none above it. NaN comes from exp(inf - inf) otherwise.
    sum = (max == both ? sum : sum * exponential(max - both)) +
          (other.max == both ? other.sum : other.sum * exponential(other.max - both));
    max = both;
  }
  __device__ void merge_over_warp() {
    for (int step = kWarp / 2; step > 0; step /= 2)
      merge({__shfl_xor_sync(~0U, max, step), __shfl_xor_sync(~0U, sum, step), __shfl_xor_sync(~0U, plain, step)});
  }
};

/// Calls one(column) for the first columns of a row, until they are aligned, and the last; many(column) for 16 bytes.
template <class S, class One, class Many>
__device__ void for_columns(const S* row, std::int64_t columns, const One& one, const Many& many) {
  constexpr int kSize = Vector<S>::kSize;
  const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(S));
  const std::int64_t head = misaligned == 0 ? 0 : min(columns, kSize - misaligned);
  const std::int64_t vectors = (columns - head) / kSize, tail = head + vectors * kSize;
  if (threadIdx.x < head) one(static_cast<std::int64_t>(threadIdx.x));
  for (std::int64_t i = threadIdx.x; i < vectors; i += kThreads) many(head + i * kSize);
  if (tail + threadIdx.x < columns) one(tail + threadIdx.x);
}

template <class S, class W = WideOf<S>>
__global__ void stats_of_rows(const S* logits, std::int64_t stride, std::int64_t columns, const std::int64_t* targets,
                              std::int64_t first, W* out, std::int64_t rows) {
  const std::int64_t c = blockIdx.x;
  const S* const row = logits + c * stride;
  Stats<W> own;
  for_columns(
      row, columns, [&](std::int64_t i) { own.add(static_cast<W>(row[i])); },
      [&](std::int64_t i) {
        const auto x = *reinterpret_cast<const Vector<S>*>(row + i);
#pragma unroll
        for (int k = 0; k < Vector<S>::kSize; ++k) own.add(static_cast<W>(x.at[k]));
      });
  own.merge_over_warp();
  __shared__ Stats<W> of_warp[kThreads / kWarp];
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = own;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  own = threadIdx.x < kThreads / kWarp ? of_warp[threadIdx.x] : Stats<W>{};
  own.merge_over_warp();
  if (threadIdx.x != 0) return;
  const std::int64_t target = targets[c] - first;
  out[c] = own.max;
  out[rows + c] = own.sum;
  out[2 * rows + c] = target >= 0 && target < columns ? static_cast<W>(row[target]) : W{0};
  out[3 * rows + c] = own.plain;
}

template <class S, class W = WideOf<S>>
__global__ void grads_of_rows(S* logits, std::int64_t stride, std::int64_t columns, const W* max, const W* scale,
                              const std::int64_t* targets, std::int64_t first, const W* on_target, const W* everywhere,
                              std::int64_t padding) {
  const std::int64_t c = blockIdx.x;
  S* const row = logits + c * stride;
  const std::int64_t target = targets[c] - first;
  const W most = max[c], factor = scale[c], less = everywhere ? everywhere[c] : W{0}, at_target = on_target[c];
  const auto gradient = [&](S x, std::int64_t i) {
    return static_cast<S>(exponential(static_cast<W>(x) - most) * factor - less - (i == target ? at_target : W{0}));
  };
  for_columns(
      row, columns, [&](std::int64_t i) { row[i] = gradient(row[i], i); },
      [&](std::int64_t i) {
        auto x = *reinterpret_cast<Vector<S>*>(row + i);
#pragma unroll
        for (int k = 0; k < Vector<S>::kSize; ++k) x.at[k] = gradient(x.at[k], i + k);
        *reinterpret_cast<Vector<S>*>(row + i) = x;
      });
  for (std::int64_t i = columns + threadIdx.x; i < columns + padding; i += kThreads) row[i] = S(0);
}

/// Calls f(S{}) for the dtype of the logits.
template <class F>
void by_logits(const at::Tensor& logits, const F& f) {
  switch (logits.scalar_type()) {
    case at::kFloat: return f(float{});
    case at::kDouble: return f(double{});
    case at::kBFloat16: return f(c10::BFloat16{});
    case at::kHalf: return f(c10::Half{});
    default: throw InternalError(text("fused logits of ", logits.scalar_type()));
  }
}

void require_rows(const at::Tensor& logits, const at::Tensor& targets) {
  require(logits.dim() == 2 && logits.stride(1) == 1 && targets.is_contiguous() && targets.numel() == logits.size(0) &&
              targets.scalar_type() == at::kLong,
          "fused logits of sizes ", logits.sizes(), ", strides ", logits.strides(), ", with targets ", targets.sizes());
}

at::ScalarType wide_of(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

bool has_fused_logits(const at::Tensor& logits) { return logits.is_cuda(); }

at::Tensor logit_stats(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first) {
  require_rows(logits, targets);
  const std::int64_t rows = logits.size(0);
  const at::Tensor out = at::empty({4, rows}, logits.options().dtype(wide_of(logits)).requires_grad(false));
  if (rows == 0) return out;
  const c10::cuda::CUDAGuard guard(logits.device());
  by_logits(logits, [&]<class S>(S) {
    stats_of_rows<S><<<static_cast<unsigned>(rows), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        logits.const_data_ptr<S>(), logits.stride(0), logits.size(1), targets.const_data_ptr<std::int64_t>(), first,
        out.mutable_data_ptr<WideOf<S>>(), rows);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

void softmax_grads_(const at::Tensor& logits, const at::Tensor& max, const at::Tensor& scale, const at::Tensor& targets,
                    std::int64_t first, const at::Tensor& on_target, const at::Tensor& everywhere,
                    std::int64_t padding) {
  require_rows(logits, targets);
  const std::int64_t rows = logits.size(0);
  for (const at::Tensor& of_row : {max, scale, on_target, everywhere})
    require(!of_row.defined() || (of_row.is_contiguous() && of_row.numel() == rows &&
                                  of_row.scalar_type() == wide_of(logits) && of_row.device() == logits.device()),
            "softmax_grads_: one number of ", wide_of(logits), " per row");
  require(logits.size(1) + padding <= logits.stride(0) || rows <= 1, "softmax_grads_: ", padding,
          " columns of padding");
  if (rows == 0) return;
  const c10::cuda::CUDAGuard guard(logits.device());
  by_logits(logits, [&]<class S>(S) {
    using W = WideOf<S>;
    grads_of_rows<S><<<static_cast<unsigned>(rows), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        logits.mutable_data_ptr<S>(), logits.stride(0), logits.size(1), max.const_data_ptr<W>(),
        scale.const_data_ptr<W>(), targets.const_data_ptr<std::int64_t>(), first, on_target.const_data_ptr<W>(),
        everywhere.defined() ? everywhere.const_data_ptr<W>() : nullptr, padding);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace trireme::kernels
