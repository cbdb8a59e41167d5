// dropped_rows.hpp as CUDA kernels: a block of threads per row of scores, four keys per thread and turn, which share a
// Philox block.
#include <cmath>

#include "trireme/kernels/attention/dropped_rows.hpp"
#include "trireme/kernels/rows/cuda_vectors.cuh"

namespace trireme::kernels::detail {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp, kKeys = 4;

/// A DroppedTile for the kernels.
struct TileOnDevice {
  const std::int64_t* rows;
  const bool* sees;
  std::int64_t sees_pair, sees_row;  // strides
  std::int64_t queries, keys, first_query, row_width;
  DropoutKey key;
  std::uint32_t threshold;
  float scale, kept;  // of the scores; of kept probabilities

  __device__ std::int64_t pair(std::int64_t row) const { return row / queries; }
  __device__ std::int64_t query(std::int64_t row) const { return row % queries; }
  /// The number of keys that may be seen: all after them are not.
  __device__ std::int64_t limit(std::int64_t row) const { return sees ? keys : first_query + query(row) + 1; }
  __device__ bool sees_key(std::int64_t row, std::int64_t k) const {
    return sees ? sees[pair(row) * sees_pair + query(row) * sees_row + k] : k < limit(row);
  }
  __device__ std::array<std::uint32_t, 4> words(std::int64_t row, std::int64_t k) const {
    DropoutKey used = key;
    if (used.purpose_on_device) used.purpose = static_cast<std::uint64_t>(*used.purpose_on_device);
    return dropout_block(used, static_cast<std::uint64_t>(rows[row] * row_width + k) / kKeys);
  }
};

template <class S>
struct alignas(kKeys * sizeof(S)) FourKeys {
  S at[kKeys];
};

__device__ void four_scores(const float* scores, float (&x)[kKeys]) {
  const float4 v = *reinterpret_cast<const float4*>(scores);
  x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

/// A maximum, and the sum of exp(x - maximum).
struct Softmax {
  float most = -INFINITY, sum = 0;
  __device__ void add(const Softmax& other) {
    const float both = fmaxf(most, other.most);
    if (both == -INFINITY) return;
    sum = sum * __expf(most - both) + other.sum * __expf(other.most - both);
    most = both;
  }
};

template <class S>
__global__ void drop_probabilities(const float* all_scores, TileOnDevice tile, S* all_probs, float* lse) {
  __shared__ Softmax of_warp[kWarps];
  const std::int64_t row = blockIdx.x, limit = tile.limit(row);
  const float* const scores = all_scores + row * tile.keys;
  S* const probs = all_probs + row * tile.keys;
  Softmax own;
  for (std::int64_t k = threadIdx.x * kKeys; k < limit; k += kThreads * kKeys) {
    float x[kKeys];
    four_scores(scores + k, x);
#pragma unroll
    for (int j = 0; j < kKeys; ++j)
      if (tile.sees_key(row, k + j)) own.add({x[j] * tile.scale, 1});
  }
  for (int step = kWarp / 2; step > 0; step /= 2)
    own.add({__shfl_xor_sync(~0U, own.most, step), __shfl_xor_sync(~0U, own.sum, step)});
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = own;
  __syncthreads();
  Softmax whole;
  for (int w = 0; w < kWarps; ++w) whole.add(of_warp[w]);
  const float log_sum = whole.most + __logf(whole.sum);
  if (threadIdx.x == 0) lse[row] = log_sum;
  for (std::int64_t k = threadIdx.x * kKeys; k < tile.keys; k += kThreads * kKeys) {
    FourKeys<S> out{};
    if (k < limit) {
      float x[kKeys];
      four_scores(scores + k, x);
      const auto words = tile.words(row, k);
#pragma unroll
      for (int j = 0; j < kKeys; ++j)
        if (words[j] >= tile.threshold && tile.sees_key(row, k + j))
          out.at[j] = static_cast<S>(__expf(x[j] * tile.scale - log_sum) * tile.kept);
    }
    *reinterpret_cast<FourKeys<S>*>(probs + k) = out;
  }
}

template <class S>
__global__ void drop_gradients(const float* all_scores, const float* all_dprobs, TileOnDevice tile, const float* lse,
                               const float* delta, S* all_probs, S* all_dscores) {
  const std::int64_t row = blockIdx.x, limit = tile.limit(row), begin = row * tile.keys;
  const float log_sum = lse[row], mean = delta[row];
  for (std::int64_t k = threadIdx.x * kKeys; k < tile.keys; k += kThreads * kKeys) {
    FourKeys<S> probs{}, dscores{};
    if (k < limit) {
      float x[kKeys], d[kKeys];
      four_scores(all_scores + begin + k, x);
      four_scores(all_dprobs + begin + k, d);
      const auto words = tile.words(row, k);
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
        if (!tile.sees_key(row, k + j)) continue;
        const float p = __expf(x[j] * tile.scale - log_sum), factor = words[j] >= tile.threshold ? tile.kept : 0.0F;
        probs.at[j] = static_cast<S>(p * factor);
        dscores.at[j] = static_cast<S>(p * (d[j] * factor - mean) * tile.scale);
      }
    }
    *reinterpret_cast<FourKeys<S>*>(all_probs + begin + k) = probs;
    *reinterpret_cast<FourKeys<S>*>(all_dscores + begin + k) = dscores;
  }
}

TileOnDevice on_device(const at::Tensor& scores_Prs, const DroppedTile& tile) {
  const at::Tensor& sees = tile.sees_Prs;
  return {.rows = tile.rows_Pr.const_data_ptr<std::int64_t>(),
          .sees = sees.defined() ? sees.const_data_ptr<bool>() : nullptr,
          .sees_pair = sees.defined() ? sees.stride(0) : 0,
          .sees_row = sees.defined() ? sees.stride(1) : 0,
          .queries = scores_Prs.size(1),
          .keys = scores_Prs.size(2),
          .first_query = tile.first_query,
          .row_width = tile.dropout.row_width,
          .key = tile.dropout.key,
          .threshold = dropout_threshold(tile.dropout.p),
          .scale = static_cast<float>(tile.scale),
          .kept = static_cast<float>(1 / (1 - tile.dropout.p))};
}

template <class F>
void by_probability_dtype(at::ScalarType dtype, const F& f) {
  if (dtype == at::kBFloat16) return f(c10::BFloat16{});
  if (dtype == at::kHalf) return f(c10::Half{});
  if (dtype == at::kFloat) return f(float{});
  throw InternalError(text("dropped_attention in ", dtype, " has no CUDA kernel"));
}

}  // namespace

bool has_dropped_rows_on_cuda(const at::Tensor& scores_Prs, const DroppedTile& tile) {
  const at::Tensor& sees = tile.sees_Prs;
  return scores_Prs.is_cuda() && scores_Prs.scalar_type() == at::kFloat && scores_Prs.is_contiguous() &&
         scores_Prs.size(2) % kKeys == 0 && tile.dropout.row_width % kKeys == 0 &&
         (!sees.defined() || sees.stride(2) == 1);
}

at::Tensor dropped_probabilities_on_cuda(const at::Tensor& scores_Prs, const DroppedTile& tile, at::ScalarType dtype,
                                         const at::Tensor& any_lse_Pr) {
  const c10::cuda::CUDAGuard guard(scores_Prs.device());
  const at::Tensor probs_Prs = at::empty(scores_Prs.sizes(), scores_Prs.options().dtype(dtype));
  const at::Tensor lse_Pr = any_lse_Pr.is_contiguous() ? any_lse_Pr : any_lse_Pr.contiguous();
  const auto rows = static_cast<unsigned>(scores_Prs.size(0) * scores_Prs.size(1));
  by_probability_dtype(dtype, [&]<class S>(S) {
    drop_probabilities<S><<<rows, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        scores_Prs.const_data_ptr<float>(), on_device(scores_Prs, tile), probs_Prs.mutable_data_ptr<S>(),
        lse_Pr.mutable_data_ptr<float>());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  if (!lse_Pr.is_same(any_lse_Pr)) any_lse_Pr.copy_(lse_Pr);
  return probs_Prs;
}

DroppedGradients dropped_gradients_on_cuda(const at::Tensor& scores_Prs, const at::Tensor& dprobs_Prs,
                                           const DroppedTile& tile, at::ScalarType dtype, const at::Tensor& lse_Pr,
                                           const at::Tensor& delta_Pr) {
  const c10::cuda::CUDAGuard guard(scores_Prs.device());
  const auto options = scores_Prs.options().dtype(dtype);
  const DroppedGradients out{at::empty(scores_Prs.sizes(), options), at::empty(scores_Prs.sizes(), options)};
  const auto rows = static_cast<unsigned>(scores_Prs.size(0) * scores_Prs.size(1));
  by_probability_dtype(dtype, [&]<class S>(S) {
    drop_gradients<S><<<rows, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        scores_Prs.const_data_ptr<float>(), dprobs_Prs.const_data_ptr<float>(), on_device(scores_Prs, tile),
        lse_Pr.const_data_ptr<float>(), delta_Pr.const_data_ptr<float>(), out.probs_Prs.mutable_data_ptr<S>(),
        out.dscores_Prs.mutable_data_ptr<S>());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

}  // namespace trireme::kernels::detail
