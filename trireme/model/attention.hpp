#pragma once
// Causal self-attention with its heads sharded over tp.
#include <memory>
#include <optional>

#include "trireme/kernels/attention/flash_attention.hpp"
#include "trireme/nn/dropout.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/nn/rope.hpp"
#include "trireme/parallel/tensor/linear.hpp"

namespace trireme {

struct AttentionOptions {
  std::int64_t features = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool qkv_bias = false, out_bias = false;
  bool qk_norm = false;
  double norm_eps = 1e-6;
  std::int64_t window = 0;  // sliding window: a token attends to this many tokens, including itself; 0: all before it
  double score_size = 0;    // scores are divided by its square root; 0: head_dim
  double softcap = 0;       // a score s becomes softcap tanh(s / softcap); 0: none
  double dropout = 0;       // of the attention probabilities (kernels/attention/dropped_attention.hpp)
};

/// What the attention layers of a forward share.
struct AttentionFacts {
  std::optional<Rotation> rotation = {};         // for all T tokens; none without RoPE
  std::optional<kernels::FlashMask> flash = {};  // flash_mask()
  at::Tensor sees = {};  // else attention_mask(); undefined: all keys up to the query, or a ring
};

/// For documents that are apart or a sliding window on a GPU with a kernel for them: no mask in memory is needed.
std::optional<kernels::FlashMask> flash_mask(const ForwardContext& context, const AttentionOptions& options,
                                             const Parallel& parallel, at::ScalarType dtype);

/// True where a query (row) of whole samples attends to a key, for documents that are apart or a sliding window: [S, S]
/// or [b, 1, S, S]; with a cache of new tokens, [b, 1, s, S]. Undefined if it attends to all keys up to itself, and for
/// a ring, which makes a mask per block.
at::Tensor attention_mask(const ForwardContext& context, std::int64_t window, const Parallel& parallel);

// T tokens = b samples x s; D features, h = this rank's heads, g = its KV heads, d = head_dim
/// y = W_out softmax(q k^T / sqrt(d)) v with q, k, v = W_qkv x; d, or another AttentionOptions::score_size. Heads are
/// sharded over tp; if tp is larger than the number of KV heads, neighbouring ranks hold the same KV head, and its
/// gradient is summed over them (gradients.hpp).
///   forward    qkv column-parallel, the rest local, out row-parallel: one all_reduce
///   backward   the same for dx; with sequence parallelism all_gather and reduce_scatter instead
/// With context parallelism a rank has a part of every sample: ring_attention.hpp, ulysses.hpp.
class Attention final : public Layer {
 public:
  Attention(const AttentionOptions& options, Parallel parallel);
  at::Tensor forward(const at::Tensor& x, const AttentionFacts& facts, const ForwardContext& context,
                     const MaybeRebuild& rebuild = {});

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
