#pragma once
// What a Decoder calls for each of its layers: the built-in Block, or a layer of a registered family.
#include "trireme/describe/counts.hpp"
#include "trireme/model/attention.hpp"
#include "trireme/nn/layer.hpp"
#include "trireme/nn/recompute.hpp"

namespace trireme {

// T tokens, t = those that this rank holds between the layers (all, or T / tp with sequence parallelism); D features

/// Token metadata shared by all layers of a forward.
struct TokenFacts {
  ForwardContext context;
  AttentionFacts attention;              // for layers with the model's window
  AttentionFacts attention_to_all = {};  // for those without one, if they differ (model.sliding_window_pattern)
  at::Tensor rows_t;                     // ids of the tokens between the layers, for dropout
  /// activation_checkpoint.mode = "selective": outputs of norms, activations and (on the unfused path) probabilities
  /// are to be recomputed in backward. Saves memory only: a layer may ignore it.
  bool selective = false;
};

/// A layer of the residual stream. Its parameters are those of Layers, so that their sharding, initial values and
/// gradient sums are known. With activation_checkpoint.mode = "full" the decoder runs forward again in backward.
class DecoderLayer : public Layer {
 public:
  /// [t, D] -> [t, D]
  virtual at::Tensor forward(const at::Tensor& x_tD, const TokenFacts& tokens) = 0;
};

/// The options of the attention in a layer that a model config implies. `layer`: where windows alternate.
AttentionOptions attention_options(const ModelConfig& model, std::int64_t layer = 0);

/// The layer's forward. selective: see TokenFacts; full: nothing but its input is stored.
at::Tensor run_layer(DecoderLayer& layer, const at::Tensor& x_tD, TokenFacts tokens, config::Recompute mode,
                     RecomputeOptions again = {.preserve_rng = false});

}  // namespace trireme
