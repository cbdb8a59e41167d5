#pragma once
// Parses YAML into settings, for other trainers' files. The only file that includes the YAML library.
#include <string>

#include "trireme/config/schema/setting.hpp"

namespace trireme::config {

/// Maps become dotted paths, lists of maps get an index, null is Nothing; places have line numbers. Plain scalars are
/// typed as in YAML 1.2 (1e-4 is a number, "no" is a string). ConfigError with file and line for a syntax error, a
/// duplicate key, and for anchors, aliases and tags, which no config needs.
Settings parse_yaml(const std::string& file, const std::string& yaml);

}  // namespace trireme::config
