#pragma once
// What a config may say, and validate() lets pass, but training cannot do.
#include <vector>

#include "trireme/config/parse.hpp"

namespace trireme {

/// What stands in the way of training a config that validate() lets pass. Expects derived values; does not repeat
/// loaded.violations.
std::vector<Violation> validate_for_training(const LoadedConfig& loaded);

}  // namespace trireme
