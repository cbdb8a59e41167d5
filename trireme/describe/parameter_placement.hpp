#pragma once
// How tp cuts the parameters of a model, without building it.
#include <string_view>

#include "trireme/config/schema/config.hpp"
#include "trireme/layout/placement.hpp"

namespace trireme {

/// How the layers of nn/ declare a parameter of this name (one of parameter_names()). Expects derived values.
Placement parameter_placement(const ModelConfig& model, std::string_view name);

}  // namespace trireme
