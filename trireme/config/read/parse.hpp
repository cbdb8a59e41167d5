#pragma once
// Loads a Config from files, flags and presets, and records the origin of each value.
#include <map>
#include <string>
#include <vector>

#include "trireme/config/read/flags.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/config/schema/setting.hpp"
#include "trireme/config/settings/violation.hpp"

namespace trireme::config {

struct Origin {
  enum class Kind { standard, preset, hf, file, flag, derived };
  Kind kind = Kind::standard;
  Place place;
};
const char* name(Origin::Kind kind);

struct LoadedConfig {
  Config config;
  std::map<std::string, Origin> origins;  // by key; keys with default values are absent
  std::string file;                       // as given by the user; empty if there is none
  std::vector<Violation> violations;      // found so far; validate() adds those across keys
  bool model_was_refused = false;         // by such a violation: the sizes that are missing are no fault of their own

  /// Where the value of a key was set; for a default, the key itself.
  Place place_of(const std::string& key) const;
  bool is_given(const std::string& key) const { return origins.contains(key); }
};

/// In increasing precedence: defaults, preset or model.hf, settings of the file, flags. Unknown keys, wrong types and
/// bad values become violations, so that they are all reported together; reading stops after a hundred of them.
/// `file_text` is used to show lines in messages.
LoadedConfig load_settings(const std::string& file, const std::string& file_text, const Settings& from_file,
                           const Settings& from_flags);

/// Reads a TOML file (none if `path` is empty) and flags. ConfigError if the file is not TOML.
LoadedConfig load_config(const std::string& path, const Settings& flags = {});
/// The same for TOML that is already in memory.
LoadedConfig load_config_text(const std::string& file, const std::string& toml,
                              const std::vector<std::string>& flags = {});

}  // namespace trireme::config
