#pragma once
// The flags in a Megatron launch script, as settings.
#include <string>

#include "trireme/config/read/setting.hpp"

namespace trireme::config {

/// Words that begin with --, each with the words after it up to the end of its command. Comments, quotes, lines that go
/// on after a backslash, arrays of flags, texts of flags (ARGS="--bf16 ...") and NAME=value with $NAME, ${NAME} or
/// ${NAME:-other} are understood; other shell is not: what stays of it in a value still holds its $.
Settings parse_megatron_script(const std::string& file, const std::string& script);

/// Whether a value of such a setting depends on what only a shell knows.
bool needs_shell(const Setting& setting);

}  // namespace trireme::config
