#pragma once
// A family of decoders of one's own: configs name it as model.model_type, and everything that trains a built-in family
// trains it, without a change in this library.
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/config/schema/config.hpp"
#include "trireme/model/decoder_layer.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/parallel/tensor/mlp.hpp"

namespace trireme {

/// A decoder with the embedding, positions, head, initial values and config rules of a built-in family, and layers of
/// one's own, or its layers with an attention or an MLP of one's own.
struct ModelFamily {
  std::string name;            // letters, digits, _ - .
  std::string like = "llama";  // a built-in family
  /// Layer number `layer` of the model, of layers of trireme/nn, or with parameters from Layer::declare(). Called on
  /// every rank for its part of the model, and once more to count parameters: no collectives, no random numbers.
  std::function<std::shared_ptr<DecoderLayer>(const ModelConfig& model, const Parallel& parallel, std::int64_t layer)>
      layer = {};
  /// Or parts of the layers of `like`, called in the same way.
  std::function<std::shared_ptr<Attention>(const ModelConfig& model, const Parallel& parallel, std::int64_t layer)>
      attention = {};
  std::function<std::shared_ptr<MlpLayer>(const ModelConfig& model, const Parallel& parallel, std::int64_t layer)> mlp =
      {};
  /// The norm after the last layer; empty: that of `like`.
  std::function<std::shared_ptr<Norm>(const ModelConfig& model, const Parallel& parallel)> norm = {};
};

/// Call it at the beginning of main(), before a config is read. ConfigError: see config/schema/registered_families.hpp.
///
///   int main(int argc, char** argv) {
///     trireme::register_family({.name = "mine", .layer = [](const auto& model, const auto& parallel, std::int64_t) {
///                                 return std::make_shared<MyLayer>(model, parallel);
///                               }});
///     return trireme::run_program(argc, argv);  // ./mine train run.toml -n 4, with model.model_type = "mine"
///   }
void register_family(ModelFamily family);

/// nullptr unless it was registered.
const ModelFamily* find_model_family(std::string_view name);

}  // namespace trireme
