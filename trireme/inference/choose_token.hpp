#pragma once
// From the hidden state of the last tokens to the next ones.
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/data/tokens/token_id.hpp"
#include "trireme/inference/inference_model.hpp"
#include "trireme/parallel/tensor/sampler.hpp"

namespace trireme {

struct ChoiceOptions {
  SamplerOptions sampling{.temperature = 0};
  double repetition_penalty = 1;
  std::int64_t known_tokens = 0;
};

/// Of the last pipeline stage. It remembers which tokens each sequence has, for the repetition penalty.
class TokenChooser {
 public:
  TokenChooser(InferenceModel& model, const ChoiceOptions& options, std::int64_t first_sequence,
               const std::vector<std::vector<data::TokenId>>& prompts);

  /// Host memory, f64 [b, v] of this rank's entries: the noise that makes draw number `draw` a sample. Undefined for
  /// greedy choices.
  at::Tensor noise(std::int64_t draw) const;
  /// i64 [b], the same on all ranks of tp. `noise_bv`: noise(), on the device. Enqueues kernels only: it may be
  /// recorded in a CUDA graph if tp = 1.
  at::Tensor choose(const at::Tensor& hidden_bD, const at::Tensor& noise_bv);

 private:
  void penalize(const at::Tensor& logits_bv) const;

  InferenceModel& model_;
  const ChoiceOptions options_;
  const std::int64_t first_sequence_, batch_;
  at::Tensor has_bV_;  // bool; undefined without a penalty
};

}  // namespace trireme
