#include "trireme/kernels/attention/attention_block.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <ATen/SDPBackend.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/rows/dtype.hpp"

// b samples, h heads, g KV heads, q queries, k keys, d head dim
namespace trireme::kernels {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// f32 or f64, with KV heads repeated for every query head.
at::Tensor widened(const at::Tensor& x, std::int64_t heads) {
  const at::Tensor wide = x.to(wide_dtype(x.scalar_type()));
  return x.size(1) == heads ? wide : wide.repeat_interleave(heads / x.size(1), 1);
}

/// Sums the gradients of the repeats of a KV head.
at::Tensor summed_repeats(const at::Tensor& dx, std::int64_t kv_heads) {
  return dx.size(1) == kv_heads ? dx : dx.unflatten(1, {kv_heads, -1}).sum(2);
}

/// 0 where a query attends to a key, else minus infinity.
std::optional<at::Tensor> added_mask(const at::Tensor& sees, at::ScalarType dtype) {
  if (!sees.defined()) return std::nullopt;
  return at::zeros(sees.sizes(), sees.options().dtype(dtype)).masked_fill_(sees.logical_not(), kMinusInfinity);
}

enum class GpuKernel { none, flash, cudnn };

/// The fused kernel that libtorch would choose for these sizes on this GPU, if it gives a log-sum-exp.
GpuKernel fused_gpu_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const BlockScores& mask) {
  if (!q.is_cuda() || !is_reduced(q.scalar_type()) || mask.sees.defined() || mask.softcap > 0) return GpuKernel::none;
  const auto choice = static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(q, k, v, {}, 0.0, mask.causal, std::nullopt, /*enable_gqa=*/q.size(1) != k.size(1)));
  if (choice == at::SDPBackend::cudnn_attention) return GpuKernel::cudnn;
  return choice == at::SDPBackend::flash_attention ? GpuKernel::flash : GpuKernel::none;
}

PartialAttention fused_on_gpu(GpuKernel kernel, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              bool causal) {
  if (kernel == GpuKernel::flash) {
    const auto result = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal);
    return {std::get<0>(result), std::get<1>(result)};
  }
  const auto result =
      at::_scaled_dot_product_cudnn_attention(q, k, v, std::nullopt, /*compute_log_sumexp=*/true, 0.0, causal);
  return {std::get<0>(result), std::get<1>(result).view({q.size(0), q.size(1), q.size(2)})};
}

/// x in the memory layout that cuDNN gives to results for q. libtorch keeps its plans by the layout of q alone: with
/// another one for `out` or `dout`, a plan of an earlier call would read it wrongly.
at::Tensor in_layout_of(const at::Tensor& q, const at::Tensor& x) {
  const at::Tensor like = at::empty_like(q);
  return like.strides() == x.strides() ? x : like.copy_(x);
}

AttentionGradients fused_backward_on_gpu(GpuKernel kernel, const at::Tensor& dout, const at::Tensor& q,
                                         const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                                         const at::Tensor& lse, bool causal) {
  if (kernel == GpuKernel::flash) {
    const at::Tensor no_dropout = at::zeros({2}, q.options().dtype(at::kUInt64));
    auto [dq, dk, dv] =
        at::_scaled_dot_product_flash_attention_backward(dout, q, k, v, out, lse, /*cum_seq_q=*/{}, /*cum_seq_k=*/{},
                                                         q.size(2), k.size(2), 0.0, causal, no_dropout, no_dropout);
    return {dq, dk, dv};
  }
  const at::Tensor no_dropout = at::zeros({}, q.options().dtype(at::kLong));
  auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
      in_layout_of(q, dout), q, k, v, in_layout_of(q, out), lse.unsqueeze(-1), no_dropout, no_dropout, /*attn_bias=*/{},
      /*cum_seq_q=*/{},
      /*cum_seq_k=*/{}, q.size(2), k.size(2), 0.0, causal);
  return {dq, dk, dv};
}

/// Scores of the unfused path, without a mask.
at::Tensor scores(const at::Tensor& wide_q, const at::Tensor& wide_k, double softcap) {
  const at::Tensor all =
      at::matmul(wide_q, wide_k.transpose(2, 3)).div_(std::sqrt(static_cast<double>(wide_q.size(3))));
  return softcap > 0 ? all.div_(softcap).tanh_().mul_(softcap) : all;
}

/// Minus infinity where a query does not attend to a key. `first`: index of the first of these queries.
at::Tensor masked(const at::Tensor& all, const BlockScores& mask, std::int64_t first) {
  if (!mask.causal && !mask.sees.defined()) return all;
  const at::Tensor sees = mask.sees.defined()
                              ? mask.sees.narrow(-2, first, all.size(2))
                              : at::ones({all.size(2), all.size(3)}, all.options().dtype(at::kBool)).tril_(first);
  return all.masked_fill(sees.logical_not(), kMinusInfinity);
}

/// Queries at a time on the unfused path: the scores of all of them would be larger than everything else (34 GB at
/// 16,384 queries, as many keys and 32 heads).
std::int64_t queries_at_once(const at::Tensor& q, const at::Tensor& k) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 28, kLeast = 64;
  const std::int64_t of_query =
      q.size(0) * q.size(1) * k.size(2) * static_cast<std::int64_t>(c10::elementSize(wide_dtype(q.scalar_type())));
  return std::max(kLeast, kMostBytes / std::max<std::int64_t>(1, of_query));
}

/// visit(first, number) for tiles of the queries.
template <class Visit>
void for_each_tile(const at::Tensor& q, const at::Tensor& k, Visit visit) {
  const std::int64_t each = queries_at_once(q, k);
  for (std::int64_t first = 0; first < q.size(2); first += each) visit(first, std::min(each, q.size(2) - first));
}

PartialAttention unfused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const BlockScores& mask) {
  const std::int64_t heads = q.size(1);
  const at::Tensor wide_q = widened(q, heads), wide_k = widened(k, heads), wide_v = widened(v, heads);
  // The layout of the fused kernels: the token dim before the head dim.
  const at::Tensor out =
      at::empty({q.size(0), q.size(2), heads, v.size(3)}, wide_q.options().requires_grad(false)).transpose(1, 2);
  const at::Tensor sums = at::empty({q.size(0), heads, q.size(2)}, out.options());
  for_each_tile(q, k, [&](std::int64_t first, std::int64_t number) {
    const at::Tensor s = masked(scores(wide_q.narrow(2, first, number), wide_k, mask.softcap), mask, first);
    const at::Tensor lse = s.logsumexp(-1);
    const at::Tensor finite = lse.masked_fill(lse.isneginf(), 0);  // a query without a key: exp(-inf - 0) = 0
    out.narrow(2, first, number).copy_(at::matmul((s - finite.unsqueeze(-1)).exp_(), wide_v));
    sums.narrow(2, first, number).copy_(lse);
  });
  return {out, sums};
}

AttentionGradients unfused_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse,
                                    const BlockScores& mask) {
  const std::int64_t heads = q.size(1), kv_heads = k.size(1);
  const at::Tensor wide_q = widened(q, heads), wide_k = widened(k, heads), wide_v = widened(v, heads);
  const at::Tensor dy = widened(dout, heads);
  const at::Tensor delta = (dy * widened(out, heads)).sum(-1, /*keepdim=*/true);
  AttentionGradients sums{at::empty_like(wide_q), at::Tensor(), at::Tensor()};
  const auto add = [](at::Tensor& sum, const at::Tensor& part) { sum = sum.defined() ? sum.add_(part) : part; };
  for_each_tile(q, k, [&](std::int64_t first, std::int64_t number) {
    const auto tile = [&](const at::Tensor& x) { return x.narrow(2, first, number); };
    const at::Tensor s = scores(tile(wide_q), wide_k, mask.softcap);
    const at::Tensor p = (masked(s, mask, first) - tile(lse).unsqueeze(-1)).exp_();
    at::Tensor ds = (at::matmul(tile(dy), wide_v.transpose(2, 3)) - tile(delta))
                        .mul_(p)
                        .mul_(1 / std::sqrt(static_cast<double>(q.size(3))));
    if (mask.softcap > 0) ds = ds.mul_(1 - (s / mask.softcap).square());  // the derivative of the cap
    tile(sums.dq).copy_(at::matmul(ds, wide_k));
    add(sums.dk, at::matmul(ds.transpose(2, 3), tile(wide_q)));
    add(sums.dv, at::matmul(p.transpose(2, 3), tile(dy)));
  });
  return {sums.dq, summed_repeats(sums.dk, kv_heads), summed_repeats(sums.dv, kv_heads)};
}

}  // namespace

PartialAttention attention_block(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const BlockScores& mask) {
  require(q.dim() == 4 && k.sizes() == v.sizes() && k.dim() == 4 && q.size(1) % k.size(1) == 0,
          "attention: q of sizes ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(),
          ": must be [b, heads, s, d], KV heads dividing the heads");
  if (const GpuKernel kernel = fused_gpu_kernel(q, k, v, mask); kernel != GpuKernel::none)
    return fused_on_gpu(kernel, q, k, v, mask.causal);
  if (!q.is_cpu() || mask.softcap > 0) return unfused(q, k, v, mask);
  const std::int64_t heads = q.size(1);
  const at::Tensor wide_q = widened(q, heads);
  auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      wide_q, widened(k, heads), widened(v, heads), 0.0, mask.causal, added_mask(mask.sees, wide_q.scalar_type()));
  // The kernel returns zeros and a sum of 0 for a query that sees no key, as if it were exp(0).
  if (mask.sees.defined()) lse = lse.masked_fill(mask.sees.any(-1).logical_not(), kMinusInfinity);
  return {out, lse};
}

bool has_fused_gpu_block(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const BlockScores& mask) {
  return fused_gpu_kernel(q, k, v, mask) != GpuKernel::none;
}

PartialAttention merged(const PartialAttention& sum, const PartialAttention& block) {
  const at::Tensor lse = at::logaddexp(sum.lse, block.lse);
  const at::Tensor kept = (sum.lse - lse).exp_().unsqueeze(-1), added = (block.lse - lse).exp_().unsqueeze(-1);
  return {sum.out * kept + block.out * added, lse};
}

AttentionGradients attention_block_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse,
                                            const BlockScores& mask) {
  if (const GpuKernel kernel = fused_gpu_kernel(q, k, v, mask); kernel != GpuKernel::none)
    return fused_backward_on_gpu(kernel, dout, q, k, v, out, lse, mask.causal);
  // A query that sees no key of any block: exp(-inf - 0) = 0.
  const at::Tensor finite = mask.sees.defined() ? lse.masked_fill(lse.isneginf(), 0) : lse;
  if (!q.is_cpu() || mask.softcap > 0) return unfused_backward(dout, q, k, v, out, finite, mask);
  const std::int64_t heads = q.size(1), kv_heads = k.size(1);
  const at::Tensor wide_q = widened(q, heads);
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      widened(dout, heads), wide_q, widened(k, heads), widened(v, heads), widened(out, heads), finite, 0.0, mask.causal,
      added_mask(mask.sees, wide_q.scalar_type()));
  return {dq, summed_repeats(dk, kv_heads), summed_repeats(dv, kv_heads)};
}

}  // namespace trireme::kernels
