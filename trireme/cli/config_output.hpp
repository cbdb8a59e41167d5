#pragma once
// Where `trireme config new` and `trireme config import` write a config.
#include <string>

#include "trireme/cli/commands.hpp"

namespace trireme::cli {

/// ConfigError if there is a file already: a config may have been edited since it was written.
void require_no_file(const std::string& output);

/// To a new file, or to standard output if `output` is empty.
void write_config(const std::string& output, const std::string& toml, Console& console);

}  // namespace trireme::cli
