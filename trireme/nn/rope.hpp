#pragma once
// Rotary position embeddings (RoPE): cos and sin per token position, plain or with Llama 3's scaling.
#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace trireme {

/// Llama 3's scaling for longer contexts: low frequencies are divided by `factor`, high ones unchanged, interpolated in
/// between. `old_length` is the original context length of the model.
struct Llama3Scaling {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t old_length = 8192;
};

struct RopeOptions {
  std::int64_t head_dim = 0;
  double theta = 10000;
  std::optional<Llama3Scaling> scaling = {};
};

/// cos and sin of position x frequency, [tokens, head_dim / 2] each; f64 for a model in f64, else f32.
struct Rotation {
  at::Tensor cos_Td, sin_Td;
};

Rotation rotation(const RopeOptions& options, const at::Tensor& positions_T, at::ScalarType model_dtype);

}  // namespace trireme
