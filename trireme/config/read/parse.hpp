#pragma once
// Files, flags and presets to one Config that remembers where each value came from.
#include <map>
#include <string>
#include <vector>

#include "trireme/config/read/flags.hpp"
#include "trireme/config/read/setting.hpp"
#include "trireme/config/rules/violation.hpp"
#include "trireme/config/schema/config.hpp"

namespace trireme::config {

struct Origin {
  enum class Kind { standard, preset, hf, file, flag, derived };
  Kind kind = Kind::standard;
  Place place;
};
const char* name(Origin::Kind kind);

struct LoadedConfig {
  Config config;
  std::map<std::string, Origin> origins;  // by key; a key that is not here has its default
  std::string file;                       // as the user named it; empty when there is none
  std::vector<Violation> violations;      // found so far; validate() adds those across keys

  /// Where the value of a key stands; for a default, the key itself.
  Place place_of(const std::string& key) const;
  bool is_given(const std::string& key) const { return origins.contains(key); }
};

/// Defaults, then preset or model.hf, then the file's settings, then the flags'. Unknown keys, wrong types and bad
/// values become violations, so that they are reported together with everything else; after a hundred of them the rest
/// is not read. `file_text` is what messages show lines of.
LoadedConfig load_settings(const std::string& file, const std::string& file_text, const Settings& from_file,
                           const Settings& from_flags);

/// Reads a TOML file (or none, when `path` is empty) and flags. Throws ConfigError for a file that is not TOML.
LoadedConfig load_config(const std::string& path, const Settings& flags = {});
/// The same for TOML that is already in memory.
LoadedConfig load_config_text(const std::string& file, const std::string& toml,
                              const std::vector<std::string>& flags = {});

}  // namespace trireme::config
