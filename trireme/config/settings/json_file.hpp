#pragma once
// Parses JSON into settings. The only file that includes the JSON library.
#include <string>

#include "trireme/config/schema/setting.hpp"

namespace trireme::config {

/// Objects become dotted paths, lists of objects get an index, null is Nothing. There are no line numbers: places name
/// only the file. ConfigError if it is not an object, for a duplicate key, and for nesting deeper than 32.
Settings parse_json(const std::string& file, const std::string& json);

}  // namespace trireme::config
