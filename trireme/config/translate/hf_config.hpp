#pragma once
// Reads a Hugging Face config.json as settings of our [model] section.
#include <string>
#include <vector>

#include "trireme/config/schema/setting.hpp"

namespace trireme::config {

struct HfConfig {
  Settings settings;                 // paths "model.*"
  std::vector<std::string> ignored;  // keys that do not affect the model's shape here
};

/// `path` is the file or its folder. ConfigError names the file and what is not supported: an unknown family, or a
/// feature that would change the computation (nothing is ignored silently).
HfConfig read_hf_config(const std::string& path);
HfConfig parse_hf_config(const std::string& file, const std::string& json);

}  // namespace trireme::config
