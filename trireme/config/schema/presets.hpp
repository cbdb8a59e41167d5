#pragma once
// Model presets by name, from their public config.json.
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"

namespace trireme::config {

std::vector<std::string> preset_names();
/// nullopt for an unknown preset.
std::optional<ModelConfig> find_preset(const std::string& name);
/// The preset for torchtitan's model.name and model.flavor ("llama3", "8B"); empty if there is none.
std::string torchtitan_preset(const std::string& name, const std::string& flavor);

}  // namespace trireme::config
