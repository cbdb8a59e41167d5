#pragma once
// Fused attention on a GPU within documents of any length or a sliding window, without a mask in memory.
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// Which keys up to itself a query attends to.
struct FlashMask {
  /// i32, on the device: the first token of every document in the concatenated samples, and the number of all tokens.
  /// A document does not go on in the next sample. Undefined: each sample is one document.
  at::Tensor bounds = {};
  std::int64_t longest = 0;  // document, in tokens
  std::int64_t window = 0;   // a token attends to this many tokens, including itself; 0: no limit
};

/// Probabilities that are dropped. The decisions are a function of (seed, sample, head, query, key), so every layout
/// drops the same; they are not those of dropout.hpp. libtorch's kernels round the share that is kept to 1/256.
struct FlashDropout {
  double p = 0;
  std::uint64_t seed = 0;
  std::vector<std::int64_t> samples;       // the index of each sample, the same for every layout
  std::int64_t heads = 0, first_head = 0;  // of all ranks; the first one of this rank
};

/// Whether libtorch has such a kernel on this device.
bool has_flash_attention(at::Device device, at::ScalarType dtype, std::int64_t head_dim);

/// As packed_attention().
at::Tensor flash_attention(const at::Tensor& heads, std::int64_t num_heads, const FlashMask& mask);

/// The same for samples that are one document each. Not during the capture of a CUDA graph: the kernels take the seed
/// from libtorch's generator.
at::Tensor flash_attention_with_dropout(const at::Tensor& heads, std::int64_t num_heads, const FlashDropout& dropout);

}  // namespace trireme::kernels
