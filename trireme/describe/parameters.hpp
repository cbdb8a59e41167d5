#pragma once
// The parameters of a model, from its config alone. What counts parameters, places them on ranks, predicts memory,
// names them in files or reshapes checkpoints reads this list, and a Decoder checks what its layers declare against it
// (model/check_parameters.hpp).
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/layout/param_spec.hpp"

namespace trireme {

/// What a parameter belongs to. router: what chooses experts; norm: of a layer, of heads, and the last one.
enum class ParameterKind { embedding, positions, attention, mlp, expert, router, norm, head, other };

/// A tensor of a Hugging Face folder that holds rows of a parameter of ours.
struct TheirTensor {
  std::string name;  // of an expert: "{expert}" stands for its number, and each expert has such a tensor
  std::int64_t rows = 0;
};

struct Parameter {
  std::string name;  // of a layer: within it, "attention.qkv.weight"
  ParameterKind kind = ParameterKind::other;
  /// Shape, placement, initial values. Not: `tie` and `is_tied_copy`, which depend on the pipeline, and `partial`,
  /// which depends on sequence parallelism.
  ParamSpec spec;
  /// From the first row of ours to the last; of a layer: within it. Empty for a registered family.
  std::vector<TheirTensor> theirs = {};
  bool transposed = false;  // theirs is [inputs, outputs] (GPT-2's Conv1D)

  std::int64_t elements() const { return numel(spec.shape); }
  bool is_of_experts() const { return spec.placement.view == View::expert; }
};

/// Consecutive layers with the same parameters.
struct SimilarLayers {
  Range layers;
  std::vector<Parameter> parameters;
};

struct ModelParameters {
  std::vector<Parameter> begin;       // the embedding and its positions
  std::vector<SimilarLayers> layers;  // of all layers, in their order
  std::vector<Parameter> end;         // the last norm, and the head unless it is tied to the embedding
  std::string their_layers;           // "model.layers.": before the number of a layer
};

/// Expects derived values (derive.hpp). As many entries as there are different layers, however deep the model is.
ModelParameters model_parameters(const ModelConfig& model);

/// All parameters with their full names, layer by layer: embedding.weight, layers.0.attention_norm.weight, ...
std::vector<Parameter> all_parameters(const ModelConfig& model);
/// Their names alone.
std::vector<std::string> parameter_names(const ModelConfig& model);
/// "mlp.up.weight" and 3 of "layers.3.mlp.up.weight"; the name itself and -1 outside of the layers.
std::pair<std::string_view, std::int64_t> without_layer(std::string_view name);
/// The one of this full name; ConfigError if the model has none.
Parameter parameter_named(const ModelConfig& model, std::string_view name);

}  // namespace trireme
