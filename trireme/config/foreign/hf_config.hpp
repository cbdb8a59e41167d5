#pragma once
// A Hugging Face config.json as settings of our [model] section.
#include <string>
#include <vector>

#include "trireme/config/read/setting.hpp"

namespace trireme::config {

struct HfConfig {
  Settings settings;                 // paths "model.*"
  std::vector<std::string> ignored;  // keys that say nothing about the model's shape here
};

/// `path` is the file or the folder that holds it. Throws ConfigError that names the file and what it cannot take: a
/// family that we do not have, a feature that would change the maths (so that nothing is dropped in silence).
HfConfig read_hf_config(const std::string& path);
HfConfig parse_hf_config(const std::string& file, const std::string& json);

}  // namespace trireme::config
