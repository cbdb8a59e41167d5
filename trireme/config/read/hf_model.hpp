#pragma once
// The model of a Hugging Face folder, from its config.json.
#include <string>

#include "trireme/config/schema/config.hpp"
#include "trireme/config/translate/hf_config.hpp"

namespace trireme::config {

/// With its derived values. ConfigError that names the file if one of its values is not supported: a model of another
/// config would be computed without a word. `file` is for the error.
ModelConfig model_of_hf_config(const std::string& file, const HfConfig& config);

}  // namespace trireme::config
