#pragma once
// The model and the layout that a checkpoint was saved with, from the config in its manifest.
#include <string>

#include "trireme/checkpoint/format/manifest.hpp"
#include "trireme/config/read/parse.hpp"

namespace trireme::checkpoint {

/// [model] and [parallelism], without a schedule of the run's own; the other sections have their defaults.
/// CheckpointError, with what does not fit, unless it is a model that this program has, in a valid layout, and the
/// tensors of the manifest are its parameters and their states, each in the parameter's shape. `shown`: the name for
/// messages.
config::LoadedConfig stored_config(const Manifest& manifest, const std::string& shown);

}  // namespace trireme::checkpoint
