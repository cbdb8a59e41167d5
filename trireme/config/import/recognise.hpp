#pragma once
// Whose config a file is.
#include <optional>
#include <string>

#include "trireme/config/translate/aliases.hpp"

namespace trireme::config {

/// Detects the trainer of a file from its extension and content. ConfigError if it is unknown, or our own.
Framework recognise(const std::string& file, const std::string& contents);

/// nanotron, torchtitan, megatron, deepspeed, trainer, hf: the values of --from.
std::optional<Framework> framework_by_name(const std::string& name);

/// Whether we have a key of this name.
bool is_our_key(const std::string& path);

}  // namespace trireme::config
