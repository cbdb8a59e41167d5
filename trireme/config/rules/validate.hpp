#pragma once
// The rules across settings, all of them, checked before anything starts.
#include <string>
#include <vector>

#include "trireme/config/read/parse.hpp"
#include "trireme/config/schema/derive.hpp"

namespace trireme::config {

/// Every violated rule, those of `loaded.violations` first. Expects derived values. Adds what deserves a word but
/// breaks no rule to `warnings`.
std::vector<Violation> validate(const LoadedConfig& loaded, const Started& started, std::vector<std::string>& warnings);

/// Derives, validates, and throws ConfigError with all violations; returns the warnings.
std::vector<std::string> check_config(LoadedConfig& loaded, const Started& started = {});

}  // namespace trireme::config
