#pragma once
// Attention with query heads that share key and value heads (one each: multi-head attention), sharded over tp.
#include <memory>

#include "trireme/model/attention.hpp"
#include "trireme/nn/dropout.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/parallel/tensor/linear.hpp"

namespace trireme {

// T tokens = b samples x s; D features, h = this rank's heads, g = its KV heads, d = head_dim
/// y = W_out softmax(q k^T / sqrt(d)) v with q, k, v = W_qkv x; d, or another AttentionOptions::score_size. Heads are
/// sharded over tp; if tp is larger than the number of KV heads, neighbouring ranks hold the same KV head, and its
/// gradient is summed over them (gradients.hpp).
///   forward    qkv column-parallel, the rest local, out row-parallel: one all_reduce
///   backward   the same for dx; with sequence parallelism all_gather and reduce_scatter instead
/// With context parallelism a rank has a part of every sample: ring_attention.hpp, ulysses.hpp.
class GroupedQueryAttention final : public Attention {
 public:
  GroupedQueryAttention(const AttentionOptions& options, Parallel parallel);
  at::Tensor forward(const at::Tensor& x, const AttentionFacts& facts, const ForwardContext& context,
                     const MaybeRebuild& rebuild = {}) override;

 private:
  at::Tensor output(const at::Tensor& out_bshd, const ForwardContext& context);
  at::Tensor ring_core(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ForwardContext& context);
  at::Tensor dropped_core(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionFacts& facts,
                          const ForwardContext& context);

  const AttentionOptions options_;
  const Parallel parallel_;
  const std::int64_t own_heads_, own_kv_heads_;
  std::shared_ptr<ColumnLinear> qkv_;
  std::shared_ptr<RowLinear> out_;
  std::shared_ptr<RmsNorm> q_norm_, k_norm_;
  std::shared_ptr<Dropout> dropout_;
};

}  // namespace trireme
