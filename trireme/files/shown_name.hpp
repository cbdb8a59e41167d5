#pragma once
// Escapes untrusted names (from files) so that they are safe to print.
#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::files {

/// `name` in quotes, truncated to about `max_bytes`, safe for a terminal: control characters and bidirectional marks
/// are escaped as \u001b, invalid UTF-8 becomes U+FFFD.
std::string shown_name(std::string_view name, std::size_t max_bytes = 100);

/// Text of several lines, safe for a terminal in the same way; newlines and tabs stay, and there are no quotes.
std::string shown_text(std::string_view words);

/// Whether `name`, which must be UTF-8, contains a control character (C0, DEL or C1).
bool has_control_character(std::string_view name);

}  // namespace trireme::files
