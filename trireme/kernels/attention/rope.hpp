#pragma once
// Rotary position embedding (RoPE).
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// Rotates the pairs (i, i + d/2) of the first `rotated_heads` heads of each token by the angles in its row of cos and
/// sin, as Hugging Face's Llama does (rotate_half); the other heads are copied.
///   (a, b) -> (a cos - b sin, b cos + a sin);  backward is the inverse rotation
/// x [T, heads, d], cos and sin [T, d/2] are contiguous; cos and sin are f32 (f64 for an x of f64) and get no gradient.
/// Returns a new contiguous tensor. Saved for backward: cos and sin.
at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, std::int64_t rotated_heads);

}  // namespace trireme::kernels
