#pragma once
// What a config may say, and validate() lets pass, but training cannot do.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/config/read/parse.hpp"

namespace trireme::config {

/// What stands in the way of training a config that validate() lets pass. Expects derived values; does not repeat
/// loaded.violations.
std::vector<Violation> validate_for_training(const LoadedConfig& loaded);

/// parallelism.zero_unit: 1 for "layer", 0 for "model". ConfigError for what is neither nor a number.
std::int64_t layers_per_unit(const Config& config);

/// Keys that were given and change nothing yet, each with a word about it.
std::vector<std::string> not_done_yet(const LoadedConfig& loaded);

}  // namespace trireme::config
