#pragma once
// What the layers of a model declare against what describe/ says of it. Everything that knows a model only by its
// config (counts, memory predictions, files of weights, reshaped checkpoints) relies on it.
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/model/decoder_part.hpp"
#include "trireme/nn/layer.hpp"

namespace trireme {

/// InternalError that names the parameter if one is missing, is not described, or has another shape, placement or
/// initial values than described. `declared`: all of this part.
void check_parameters(const std::vector<Param>& declared, const ModelConfig& model, const DecoderPart& part);

}  // namespace trireme
