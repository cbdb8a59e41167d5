#pragma once
// Other trainers' config files, translated to ours; what has no counterpart is told, never dropped in silence.
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/foreign/aliases.hpp"
#include "trireme/config/read/setting.hpp"

namespace trireme::config {

struct Imported {
  Framework from;
  std::string toml;                // ours
  std::vector<std::string> notes;  // "general.project = "x" (line 3): no counterpart"
};

/// The trainer that a file belongs to, by its ending and its words. Throws ConfigError when it is of none that we know.
Framework recognise(const std::string& file, const std::string& contents);

/// What the trainer assumes where its file is silent is written out when our default differs (assumed.hpp). Throws
/// ConfigError for a file that cannot be read as what it is, and for values that have no counterpart here.
Imported import_config(const std::string& file, const std::string& contents,
                       std::optional<Framework> from = std::nullopt);

/// nanotron, torchtitan, megatron, deepspeed, trainer, hf: the words of --from.
std::optional<Framework> framework_by_name(const std::string& name);

}  // namespace trireme::config
