#pragma once
// The parts of a Block that a model config implies. A registered family may bring its own (register_family.hpp).
#include <memory>

#include "trireme/model/attention.hpp"
#include "trireme/model/decoder_layer.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/parallel/tensor/mlp.hpp"

namespace trireme {

std::shared_ptr<Norm> make_norm(const ModelConfig& model, const Parallel& parallel);
std::shared_ptr<Attention> make_attention(const ModelConfig& model, const Parallel& parallel, std::int64_t layer);
/// With or without experts.
std::shared_ptr<MlpLayer> make_mlp(const ModelConfig& model, const Parallel& parallel);

/// The model has windows, and this layer has none.
bool attends_to_all(const ModelConfig& model, std::int64_t layer);
/// One balancing loss over all layers with experts.
bool balances_all_layers(const ModelConfig& model);

}  // namespace trireme
