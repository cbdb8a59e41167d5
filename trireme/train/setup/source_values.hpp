#pragma once
// The weights of a checkpoint in any format, as the values of a rank's parameters.
#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/comm/param_mesh.hpp"
#include "trireme/nn/param_values.hpp"

namespace trireme {

/// Reads only what the rank keeps. `source` must outlive it. CheckpointError for a parameter that the source lacks.
ParamValues source_values(const checkpoint::ModelSource& source, const ParamMesh& mesh);

}  // namespace trireme
