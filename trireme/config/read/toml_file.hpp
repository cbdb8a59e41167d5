#pragma once
// TOML text to settings. The only file that sees the TOML library.
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/read/setting.hpp"

namespace trireme::config {

constexpr std::size_t kMaxConfigBytes = 1 << 18;  // larger ones would take more than a second to refuse

/// The file's bytes. Throws ConfigError when it cannot be read or is larger than kMaxConfigBytes.
std::string read_config_file(const std::string& path);

/// Tables become dotted paths, arrays of tables get an index: data.0.sources.1.path. In the order of the file. Throws
/// ConfigError with file and line for a syntax error, and for what a config never needs: more than kMaxConfigBytes,
/// thousands of settings, dotted keys of more than 32 words, more than 32 values in values.
Settings parse_toml(const std::string& file, std::string_view toml);

/// Line `number` (from 1) of a text, without its end.
std::string line_of(std::string_view text, int number);

}  // namespace trireme::config
