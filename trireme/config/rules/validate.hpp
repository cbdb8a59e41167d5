#pragma once
// Validation of rules across config keys, all checked before anything starts.
#include <string>
#include <vector>

#include "trireme/config/read/derive.hpp"
#include "trireme/config/read/parse.hpp"

namespace trireme::config {

/// All violations, those of `loaded.violations` first. Expects derived values. Adds notes about valid but noteworthy
/// settings to `warnings`.
std::vector<Violation> validate(const LoadedConfig& loaded, const Started& started, std::vector<std::string>& warnings);

/// The rules about the layout alone: the grid, the stages, and the sizes of the model over the ranks, which must be
/// positive. For a config of which nothing else is known.
std::vector<Violation> validate_layout(const LoadedConfig& loaded);

/// Derives, validates, and throws ConfigError with all violations; returns the warnings.
std::vector<std::string> check_config(LoadedConfig& loaded, const Started& started = {});

}  // namespace trireme::config
