#pragma once
// The part of a decoder that one chunk of a pipeline holds.
#include <optional>

#include "trireme/config/schema/config.hpp"
#include "trireme/layout/slices.hpp"

namespace trireme {

/// Contiguous; model/stage.hpp makes those of a rank.
struct DecoderPart {
  Range layers;
  bool has_embedding = true, has_head = true;  // the first part; the last part, which also has the last norm
  int chunk = 0;                               // its number in the pipeline
  /// Of the embedding's weight, if the head uses it in another part, which has a copy.
  std::optional<TiedInfo> tie = {};

  static DecoderPart whole(const ModelConfig& model) { return {.layers = {0, model.num_hidden_layers}}; }
};

}  // namespace trireme
