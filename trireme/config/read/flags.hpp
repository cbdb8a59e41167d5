#pragma once
// Parses command-line flags into settings.
#include <string>
#include <vector>

#include "trireme/config/schema/setting.hpp"

namespace trireme::config {

/// The settings in a command line, "--a.b value", "--a.b=value" and other trainers' flags ("--bf16"); `rest` receives
/// the other arguments, in order. An argument is a setting if its name has a dot or is a known flag of another trainer.
/// ConfigError for a setting without a value that is not boolean.
Settings take_flags(const std::vector<std::string>& words, std::vector<std::string>& rest);

/// `words` without settings that are given again later: the last one counts. `repeated` gets their flags.
std::vector<std::string> without_repeated(const std::vector<std::string>& words, std::vector<std::string>& repeated);

/// take_flags(), but all arguments must be settings; otherwise ConfigError.
Settings parse_flags(const std::vector<std::string>& words);

/// For a flag that is no setting: the settings it may stand for, "--training.steps" for "--steps". Empty if there are
/// none like it.
std::vector<std::string> settings_like(const std::string& flag);

}  // namespace trireme::config
