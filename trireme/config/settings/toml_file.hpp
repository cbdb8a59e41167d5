#pragma once
// Parses TOML into settings. The only file that includes the TOML library.
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/schema/setting.hpp"

namespace trireme::config {

constexpr std::size_t kMaxConfigBytes = 1 << 18;  // larger ones would take more than a second to reject

/// The content of the file. ConfigError if it cannot be read or is larger than kMaxConfigBytes.
std::string read_config_file(const std::string& path);

/// Tables become dotted paths, arrays of tables get an index: data.0.sources.1.path. In file order. ConfigError with
/// file and line for a syntax error, and for what no valid config has: more than kMaxConfigBytes, thousands of
/// settings, dotted keys with more than 32 parts, values nested more than 32 deep.
Settings parse_toml(const std::string& file, std::string_view toml);

/// Line `number` (from 1) of a text, without the line end.
std::string line_of(std::string_view text, int number);

}  // namespace trireme::config
