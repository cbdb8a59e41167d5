#pragma once
// Keys and values of the tokens that a generation has seen: a forward of the next tokens needs only theirs.
#include <cstdint>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace trireme {

struct ForwardContext;

// b sequences, s new tokens of each, g KV heads, d head dim
class KvCache {
 public:
  struct KeysAndValues {
    at::Tensor k, v;  // [b, g, length, d]
  };

  /// Adds those of an attention layer, [b, g, s, d], at the positions of the context, and returns those of all tokens
  /// up to the longest sequence. What is there already is overwritten: padding of a shorter prompt, by its next token.
  KeysAndValues extend(const std::string& layer, const at::Tensor& k, const at::Tensor& v,
                       const ForwardContext& context);

 private:
  std::map<std::string, KeysAndValues> layers_;  // [b, g, capacity, d]
};

/// True where a new token (row) attends to a cached one: [b, 1, s, length]. `window`: 0: all up to itself.
at::Tensor cached_attention_mask(const ForwardContext& context, std::int64_t window);

}  // namespace trireme
