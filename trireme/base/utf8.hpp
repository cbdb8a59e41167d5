#pragma once
// Text from outside, made safe for formats that insist on UTF-8 (JSON, protobuf), and measured for columns.
#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

/// `text` with every ill-formed sequence replaced by U+FFFD, as Python's decode("utf-8", "replace") does.
std::string valid_utf8(std::string_view text);

/// Columns that `text` takes on a terminal: code points, not bytes, and none for colour sequences (ESC [ ... m).
/// Wide East Asian characters are counted as one.
std::size_t display_width(std::string_view text);

}  // namespace trireme
