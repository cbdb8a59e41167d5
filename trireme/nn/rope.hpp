#pragma once
// Rotary position embeddings (RoPE): cos and sin per token position, plain or with one of transformers' scalings for
// sequences longer than those of the first training.
#include <cstdint>
#include <map>
#include <variant>

#include <ATen/core/Tensor.h>

namespace trireme {

struct PlainRope {};

/// All frequencies are divided by `factor`.
struct LinearScaling {
  double factor = 1;
};

/// NTK by length: sequences longer than `old_length` get a larger theta, others the plain one.
struct DynamicScaling {
  double factor = 1;
  std::int64_t old_length = 2048;
};

/// Llama 3's scaling for longer contexts: low frequencies are divided by `factor`, high ones unchanged, interpolated in
/// between. `old_length` is the original context length of the model.
struct Llama3Scaling {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t old_length = 8192;
};

/// YaRN (arXiv 2309.00071): as Llama 3's, but interpolated over the dims between those that turn `beta_fast` and
/// `beta_slow` times within `old_length`; cos and sin are multiplied by `attention_factor`.
struct YarnScaling {
  double factor = 1;
  double beta_fast = 32, beta_slow = 1;
  double attention_factor = 1;
  bool truncate = true;  // the range begins and ends at whole dims
  std::int64_t old_length = 2048;
};
/// The attention factor of the paper, 0.1 ln(factor) + 1; with both mscales (not 0) that of DeepSeek.
double yarn_attention_factor(double factor, double mscale, double mscale_all_dim);

using RopeFrequencies = std::variant<PlainRope, LinearScaling, DynamicScaling, Llama3Scaling, YarnScaling>;

struct RopeOptions {
  std::int64_t head_dim = 0;
  double theta = 10000;
  RopeFrequencies frequencies = PlainRope{};
};

/// cos and sin of position x frequency, [tokens, head_dim / 2] each; f64 for a model in f64, else f32.
struct Rotation {
  at::Tensor cos_Td, sin_Td;
};

/// Not thread-safe.
class Rope {
 public:
  explicit Rope(RopeOptions options);

  /// `sequence_length`: of a full sample, over all ranks. transformers keeps the theta of the longest sequence so far
  /// if a shorter one follows; here it depends on this sample alone.
  Rotation rotation(const at::Tensor& positions_T, std::int64_t sequence_length, at::ScalarType model_dtype);

 private:
  const RopeOptions options_;
  // By sequence length, on the device: a copy from the host in every forward would make the host wait for the device.
  std::map<std::int64_t, at::Tensor> frequencies_d_;
};

}  // namespace trireme
