#pragma once
// The words of a command line to settings.
#include <string>
#include <vector>

#include "trireme/config/read/setting.hpp"

namespace trireme::config {

/// The settings among the words of a command line, "--a.b value", "--a.b=value" and other trainers' flags ("--bf16");
/// `rest` gets the other words, in their order. A word is a setting when its name has a dot or is another trainer's.
/// Throws ConfigError for a setting without a value that is not a switch.
Settings take_flags(const std::vector<std::string>& words, std::vector<std::string>& rest);

/// The same when all words must be settings. Throws ConfigError for one that is none.
Settings parse_flags(const std::vector<std::string>& words);

}  // namespace trireme::config
