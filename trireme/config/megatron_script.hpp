#pragma once
// The flags in a Megatron launch script, as settings.
#include <string>

#include "trireme/config/setting.hpp"

namespace trireme {

/// Words that begin with --, each with the words after it; comments, quotes, line ends with a backslash and NAME=value
/// with $NAME or ${NAME} are understood, other shell is not. Throws ConfigError for a value with a variable that is not
/// set there.
Settings parse_megatron_script(const std::string& file, const std::string& script);

}  // namespace trireme
