#pragma once
// Converts other trainers' config files to ours; keys without a counterpart are reported, never dropped silently.
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/import/recognise.hpp"
#include "trireme/config/schema/setting.hpp"

namespace trireme::config {

struct Imported {
  Framework from;
  std::string toml;  // our config
  /// What may change the result: "training.z_loss = 1.0 (line 3): no counterpart".
  std::vector<std::string> notes;
  std::vector<std::string> harmless;  // what was left out and changes nothing (harmless.hpp)
};

/// Defaults of the trainer that differ from ours are written out (assumed.hpp). A value without a counterpart is left
/// out with a note. ConfigError for a file that cannot be parsed, and for values that are wrong there, too.
Imported import_config(const std::string& file, const std::string& contents,
                       std::optional<Framework> from = std::nullopt);

}  // namespace trireme::config
