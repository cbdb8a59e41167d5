#pragma once
// Fused multi-head attention, without materializing the probabilities.
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// softmax(q k^T / sqrt(d)) v of q [b, heads, s, d], k and v [b, kv_heads, s, d], any strides with the last dim
/// contiguous; query head i uses KV head i / (heads / kv_heads). Without `sees` attention is causal; else a query
/// attends to the keys where `sees`, [s, s] or [b, 1, s, s], is true. Uses libtorch's fused kernel for the dtype and
/// device; on a CPU without native bf16 or f16, where that kernel is a hundred times slower, the same in f32. The
/// result is a view of [b, s, heads, d]. Saved for backward: q, k, v, the result, and one number per head and token.
/// `softcap`: see BlockScores (attention_block.hpp); without a fused kernel, in tiles of queries.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sees = {},
                     double softcap = 0);

/// The same of q, k and v packed as one contiguous tensor [b, s, heads + 2 kv_heads, d]; returns [b, s, heads, d]. With
/// a fused kernel of a GPU, backward gives one gradient of the packed tensor without passing over it three times.
at::Tensor packed_attention(const at::Tensor& heads, std::int64_t num_heads, const at::Tensor& sees = {},
                            double softcap = 0);

/// attention() of the next token of each sequence, q [b, heads, 1, d], to the keys of all before, without gradients:
/// products and a softmax in at least f32. The fused kernels of a GPU are planned anew for every number of keys.
at::Tensor next_token_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sees,
                                double softcap = 0);

}  // namespace trireme::kernels
