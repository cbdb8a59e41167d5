// fused_logits.hpp as CUDA kernels: one block per row. Memory-bound, so each thread reads 16 bytes at a time.
#include "trireme/kernels/loss/fused_logits.hpp"
#include "trireme/kernels/rows/cuda_vectors.cuh"

namespace trireme::kernels {
namespace {

using namespace detail;

constexpr int kThreads = 512;

/// Of a difference to the maximum. For 16 bits the fast form: its error of 2^-21 is far below that of the logits.
template <class S, class W>
__device__ W exponential(W x) {
  if constexpr (std::is_same_v<W, double>)
    return exp(x);
  else if constexpr (sizeof(S) == 2)
    return __expf(x);
  else
    return expf(x);
}

/// The maximum of some logits, the sum of exp(logit - maximum), and of the logits.
template <class S, class W = WideOf<S>>
struct Stats {
  W max = -INFINITY, sum = 0, plain = 0;

  template <int kCount>
  __device__ void add(const S (&x)[kCount]) {
    W most = max;
#pragma unroll
    for (int i = 0; i < kCount; ++i) most = fmax(most, static_cast<W>(x[i]));
    // Without a finite maximum all are minus infinity or NaN: exp(-inf - 0) = 0, and NaN stays in the sum.
    const W base = most == -INFINITY ? W{0} : most;
    sum *= max == -INFINITY ? W{0} : exponential<S>(max - base);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      sum += exponential<S>(static_cast<W>(x[i]) - base);
      plain += static_cast<W>(x[i]);
    }
    max = most;
  }
  __device__ void merge(const Stats& other) {
    plain += other.plain;
    const W both = other.max > max ? other.max : max;
    // A maximum of minus infinity: no logits, or none above it. NaN comes from exp(inf - inf) otherwise.
    sum = (max == both ? sum : sum * exponential<S>(max - both)) +
          (other.max == both ? other.sum : other.sum * exponential<S>(other.max - both));
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
  Stats<S> own;
  for_columns(
      row, columns, [&](std::int64_t i) { own.add({row[i]}); },
      [&](std::int64_t i) { own.add(load_vector(row + i).at); });
  own.merge_over_warp();
  __shared__ Stats<S> of_warp[kThreads / kWarp];
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = own;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  own = threadIdx.x < kThreads / kWarp ? of_warp[threadIdx.x] : Stats<S>{};
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
    return static_cast<S>(exponential<S>(static_cast<W>(x) - most) * factor - less - (i == target ? at_target : W{0}));
  };
  for_columns(
      row, columns, [&](std::int64_t i) { row[i] = gradient(row[i], i); },
      [&](std::int64_t i) {
        auto x = load_vector(row + i);
#pragma unroll
        for (int k = 0; k < Vector<S>::kSize; ++k) x.at[k] = gradient(x.at[k], i + k);
        store_vector(row + i, x);
      });
  for (std::int64_t i = columns + threadIdx.x; i < columns + padding; i += kThreads) row[i] = S(0);
}

void require_rows(const at::Tensor& logits, const at::Tensor& targets) {
  require(logits.dim() == 2 && logits.stride(1) == 1 && targets.is_contiguous() && targets.numel() == logits.size(0) &&
              targets.scalar_type() == at::kLong,
          "fused logits of sizes ", logits.sizes(), ", strides ", logits.strides(), ", with targets ", targets.sizes());
}

at::ScalarType wide_of(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

template <class W>
__global__ void find_terms(const W* stats, const std::int64_t* targets, std::int64_t C, std::int64_t ignored,
                           W smoothing, W z_loss, W entries, W* terms) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= C) return;
  const W most = stats[c], sum = stats[C + c], lse = log(sum);
  const W counts = targets[c] == ignored ? W{0} : W{1};
  W loss = lse - (1 - smoothing) * (stats[2 * C + c] - most);
  // Not 0 times a total that a logit of minus infinity has made infinite.
  if (smoothing > 0) loss -= smoothing / entries * (stats[3 * C + c] - most * entries);
  if (z_loss > 0) loss += z_loss * (lse + most) * (lse + most);
  terms[c] = counts == 0 ? W{0} : loss;
  terms[C + c] = most;
  terms[2 * C + c] = counts / sum * (1 + 2 * z_loss * (lse + most));
  terms[3 * C + c] = counts * (1 - smoothing);
  terms[4 * C + c] = counts * (smoothing / entries);
}

}  // namespace

bool has_fused_logits(const at::Tensor& logits) { return logits.is_cuda(); }

at::Tensor logit_stats(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first) {
  require_rows(logits, targets);
  const std::int64_t rows = logits.size(0);
  const at::Tensor out = at::empty({4, rows}, logits.options().dtype(wide_of(logits)).requires_grad(false));
  if (rows == 0) return out;
  const c10::cuda::CUDAGuard guard(logits.device());
  by_float_dtype("fused logits", logits.scalar_type(), [&]<class S>(S) {
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
  by_float_dtype("fused logits", logits.scalar_type(), [&]<class S>(S) {
    using W = WideOf<S>;
    grads_of_rows<S><<<static_cast<unsigned>(rows), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        logits.mutable_data_ptr<S>(), logits.stride(0), logits.size(1), max.const_data_ptr<W>(),
        scale.const_data_ptr<W>(), targets.const_data_ptr<std::int64_t>(), first, on_target.const_data_ptr<W>(),
        everywhere.defined() ? everywhere.const_data_ptr<W>() : nullptr, padding);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

LossTerms loss_terms(const at::Tensor& stats_4C, const at::Tensor& targets_C, const LossRule& rule) {
  const std::int64_t C = targets_C.size(0);
  require(stats_4C.is_contiguous() && stats_4C.size(0) == 4 && stats_4C.size(1) == C, "loss_terms: stats of sizes ",
          stats_4C.sizes(), " for ", C, " targets");
  const at::Tensor terms_5C = at::empty({5, C}, stats_4C.options());
  if (C > 0) {
    const c10::cuda::CUDAGuard guard(stats_4C.device());
    const auto launch = [&]<class W>(W) {
      constexpr int kRows = 256;
      find_terms<W><<<static_cast<unsigned>((C + kRows - 1) / kRows), kRows, 0, c10::cuda::getCurrentCUDAStream()>>>(
          stats_4C.const_data_ptr<W>(), targets_C.const_data_ptr<std::int64_t>(), C, rule.ignore_index,
          static_cast<W>(rule.label_smoothing), static_cast<W>(rule.z_loss), static_cast<W>(rule.entries),
          terms_5C.mutable_data_ptr<W>());
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    if (stats_4C.scalar_type() == at::kDouble)
      launch(double{});
    else
      launch(float{});
  }
  return {terms_5C[0], terms_5C[1], terms_5C[2], terms_5C[3], terms_5C[4]};
}

}  // namespace trireme::kernels
