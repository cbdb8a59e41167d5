#pragma once
// YAML text to settings, for other trainers' files. The only file that sees the YAML library.
#include <string>

#include "trireme/config/read/setting.hpp"

namespace trireme::config {

/// Maps become dotted paths, lists of maps get an index, null is Nothing; places have lines. Plain words are typed as
/// YAML 1.2 does (1e-4 is a number, "no" is text). Throws ConfigError with file and line for a syntax error, a key
/// given twice, and for anchors, aliases and tags, which no config needs.
Settings parse_yaml(const std::string& file, const std::string& yaml);

}  // namespace trireme::config
