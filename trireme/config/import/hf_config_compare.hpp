#pragma once
// Compares the config.json of a folder of weights with the model that is to run on them.
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"

namespace trireme::config {

/// "norm_eps = 1e-06 (the run's: 1e-05)" for each key of config.json that differs and changes what the weights compute.
/// Shapes do not show it: even several numbers of heads have the same. Empty without a config.json; one that describes
/// no model of ours is one entry.
std::vector<std::string> hf_config_differences(const std::filesystem::path& folder, const ModelConfig& model);

}  // namespace trireme::config
