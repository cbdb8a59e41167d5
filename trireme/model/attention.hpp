#pragma once
// Causal self-attention: what every kind of it has in common.
#include <optional>

#include "trireme/kernels/attention/flash_attention.hpp"
#include "trireme/nn/forward_context.hpp"
#include "trireme/nn/layer.hpp"
#include "trireme/nn/rope.hpp"
#include "trireme/parallel/tensor/parallel_matmul.hpp"

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

/// What a Block calls between its norms: a family's own kind is a class of this, in a file of its own.
class Attention : public Layer {
 public:
  /// [t, D] -> [t, D], t = the tokens that this rank holds between the layers. `rebuild`: how to recompute x.
  virtual at::Tensor forward(const at::Tensor& x, const AttentionFacts& facts, const ForwardContext& context,
                             const MaybeRebuild& rebuild = {}) = 0;
};

}  // namespace trireme
