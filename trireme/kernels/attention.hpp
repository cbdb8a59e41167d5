#pragma once
// Attention of heads, without its probabilities in memory.
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// softmax(q k^T / sqrt(d)) v of q [b, heads, s, d], k and v [b, kv_heads, s, d], any strides with the last dim
/// contiguous; query head i uses KV head i / (heads / kv_heads). Without `sees` a query sees the keys up to its own;
/// else the keys where `sees` [s, s] is true. libtorch's fused form for the dtype and device; on a CPU that does not
/// multiply bf16 or f16 by itself, where that form is a hundred times slower, the same in f32. The result is a view of
/// [b, s, heads, d]. Kept for backward: q, k, v, the result, and a number for each head and token.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sees = {});

}  // namespace trireme::kernels
