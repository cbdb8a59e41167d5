#pragma once
// Generates tokens after prompts: the same tokens on every layout.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/data/tokens/token_id.hpp"
#include "trireme/inference/inference_model.hpp"
#include "trireme/parallel/tensor/sampler.hpp"

namespace trireme {

struct GeneratorOptions {
  SamplerOptions sampling{.temperature = 0};
  double repetition_penalty = 1;  // above 1: logits of tokens that are in the sequence are divided by it, or multiplied
                                  // if negative
  std::int64_t max_tokens = 128;  // new ones, of each sequence
  std::int64_t first_sequence = 0;  // number of the first prompt among those of all calls: samples depend on it
  std::vector<data::TokenId> end_tokens = {};  // that end a sequence, and are not part of it
  std::int64_t known_tokens = 0;  // tokens from this number on are never chosen: the tokenizer has none; 0: all may be
  bool cached = true;             // false: every step runs the whole sequences again
  /// Tokens are enqueued ahead of the host: on GPUs, where the model allows it (TokenLoop); always, for tests; never.
  enum class Ahead { on_gpus, always, never } ahead = Ahead::on_gpus;
};

enum class Finish { end_token, stopped, max_tokens, max_length };
const char* name(Finish finish);

struct GeneratedSequence {
  std::vector<data::TokenId> tokens{};  // the new ones
  Finish finish = Finish::max_tokens;
};

/// Of one or several calls together.
struct GenerationSpeed {
  std::int64_t sequences = 0;
  double prompt_seconds = 0, seconds = 0;  // of the forward of all prompts; of the tokens after the first
  std::int64_t prompt_tokens = 0, tokens = 0;
};

/// ConfigError for options out of range, and for prompts that are empty or leave no room for a token in `length`.
void check_generation(const std::vector<std::vector<data::TokenId>>& prompts, const GeneratorOptions& options,
                      std::int64_t length);

/// Called for each new token with the number of its sequence, on all ranks; returns whether the sequence goes on. The
/// answer must be the same on all ranks.
using OnToken = std::function<bool(std::size_t sequence, data::TokenId token)>;

/// Collective over the mesh of the model. `prompts`: token ids, the same on all ranks, each not empty. A sequence ends
/// at an end token, when `on_token` says so, after max_tokens, or at the length that the model is made for.
/// ConfigError for a prompt that leaves no room for a token.
std::vector<GeneratedSequence> generate(InferenceModel& model, const std::vector<std::vector<data::TokenId>>& prompts,
                                        const GeneratorOptions& options, const OnToken& on_token = {},
                                        GenerationSpeed* speed = nullptr);

}  // namespace trireme
