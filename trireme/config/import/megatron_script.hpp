#pragma once
// Parses the flags in a Megatron launch script into settings.
#include <string>

#include "trireme/config/schema/setting.hpp"

namespace trireme::config {

/// Words that begin with --, each with the following words up to the next flag or the end of its command. Supported:
/// comments, quotes, line continuations, arrays of flags, strings of flags (ARGS="--bf16 ..."), and NAME=value with
/// $NAME, ${NAME} or ${NAME:-other}. Other shell syntax is not expanded: such a value still contains its $.
Settings parse_megatron_script(const std::string& file, const std::string& script);

/// Whether the value contains shell syntax that was not expanded.
bool needs_shell(const Setting& setting);

}  // namespace trireme::config
