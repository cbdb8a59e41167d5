#pragma once
// UTF-8: sanitizing untrusted text for formats that require it (JSON, protobuf), and its display width.
#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

/// `text` with every ill-formed sequence replaced by U+FFFD, as Python's decode("utf-8", "replace") does.
std::string valid_utf8(std::string_view text);

/// Columns of `text` on a terminal: code points, not bytes, excluding colour sequences (ESC [ ... m).
/// Wide East Asian characters are counted as one.
std::size_t display_width(std::string_view text);

}  // namespace trireme
