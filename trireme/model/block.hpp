#pragma once
// The layer of the built-in families, from parts that the family picks.
#include <memory>

#include "trireme/model/block_parts.hpp"
#include "trireme/model/decoder_layer.hpp"
#include "trireme/nn/dropout.hpp"

namespace trireme {

struct ModelFamily;

// T tokens, t = those that this rank holds between the layers (all, or T / tp with sequence parallelism); D features

/// The layer of the built-in families: x + attention(norm(x)), then x + mlp(norm(x)); with post-norms
/// x + norm(attention(norm(x))), then x + norm(mlp(norm(x))).
class Block final : public DecoderLayer {
 public:
  /// `family`: brings its own attention or MLP, or is nullptr.
  Block(const ModelConfig& model, const Parallel& parallel, std::int64_t layer, const ModelFamily* family = nullptr);
  at::Tensor forward(const at::Tensor& x_tD, const TokenFacts& tokens) override;

 private:
  const bool attends_to_all_;  // the model has windows, and this layer has none
  std::shared_ptr<Norm> attention_norm_, mlp_norm_, attention_post_norm_, mlp_post_norm_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<MlpLayer> mlp_;
  std::shared_ptr<Dropout> attention_dropout_, mlp_dropout_;
};

}  // namespace trireme
