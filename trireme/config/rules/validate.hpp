#pragma once
// Validation of rules across config keys, all checked before anything starts.
#include <string>
#include <vector>

#include "trireme/config/read/parse.hpp"
#include "trireme/config/schema/derive.hpp"

namespace trireme::config {

/// All violations, those of `loaded.violations` first. Expects derived values. Adds notes about valid but noteworthy
/// settings to `warnings`.
std::vector<Violation> validate(const LoadedConfig& loaded, const Started& started, std::vector<std::string>& warnings);

/// Derives, validates, and throws ConfigError with all violations; returns the warnings.
std::vector<std::string> check_config(LoadedConfig& loaded, const Started& started = {});

}  // namespace trireme::config
