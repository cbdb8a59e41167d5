#pragma once
// Rules for training only: valid configs that training does not support.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/config/read/parse.hpp"

namespace trireme::config {

/// What prevents training with a config that passes validate(). Expects derived values; does not repeat
/// loaded.violations.
std::vector<Violation> validate_for_training(const LoadedConfig& loaded);

/// parallelism.zero_unit: 1 for "layer", 0 for "model", else the number. ConfigError if it is neither.
std::int64_t layers_per_unit(const Config& config);

/// What is allowed, but probably not what was meant: held-out tokens that nothing reads.
std::vector<std::string> training_notes(const LoadedConfig& loaded);

}  // namespace trireme::config
