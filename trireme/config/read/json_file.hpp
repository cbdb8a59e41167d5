#pragma once
// JSON text to settings. The only file that sees the JSON library.
#include <string>

#include "trireme/config/read/setting.hpp"

namespace trireme::config {

/// Objects become dotted paths, lists of objects get an index, null is Nothing. JSON has no line numbers for us: places
/// name the file. Throws ConfigError for what is not an object, for a key given twice, and for nesting deeper than 32.
Settings parse_json(const std::string& file, const std::string& json);

}  // namespace trireme::config
