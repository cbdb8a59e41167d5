#pragma once
// Attention over a part of the keys, and the merge of such parts: what attention over several ranks is made of.
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// The keys of a block that a query attends to, and its scores with them.
struct BlockScores {
  bool causal = false;   // those up to its own index; else all
  at::Tensor sees = {};  // instead: bool [(b or 1, 1,) queries, keys]; a query may see no key of the block
  double softcap = 0;    // a score s becomes softcap tanh(s / softcap); no fused kernel has it. 0: none
};

/// softmax(q k^T / sqrt(d)) v over the keys of some blocks.
struct PartialAttention {
  at::Tensor out;  // [b, heads, queries, d]
  at::Tensor lse;  // [b, heads, queries]: log of the sum of exponentials, f32 or f64; minus infinity without a key
};

/// q [b, heads, queries, d], k and v [b, kv_heads, keys, d], any strides with the last dim contiguous; query head i
/// uses KV head i / (heads / kv_heads). `out` is in f32 or f64, except for a fused kernel of 16 bits on a GPU.
PartialAttention attention_block(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const BlockScores& mask);

/// Whether attention_block() uses a fused kernel of a GPU for these.
bool has_fused_gpu_block(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const BlockScores& mask);

/// Adds the keys of another block for the same queries, which must see a key in `sum`. `sum` is in f32 or f64 and not
/// written to: the result is new.
///   lse' = log(exp(lse) + exp(block.lse)),  out' = out exp(lse - lse') + block.out exp(block.lse - lse')
PartialAttention merged(const PartialAttention& sum, const PartialAttention& block);

struct AttentionGradients {
  at::Tensor dq, dk, dv;  // in f32 or f64, except for a fused kernel of 16 bits on a GPU
};

/// The part of the gradients that goes through a block. `out` and `lse` are the results over all blocks.
AttentionGradients attention_block_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse,
                                            const BlockScores& mask);

}  // namespace trireme::kernels
