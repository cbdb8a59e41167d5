#pragma once
// Names from files that nobody has checked yet, made safe to print.
#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::files {

/// `name` in quotes, at most about `max_bytes` of it, with nothing that a terminal would act on: control characters and
/// marks that turn the direction of writing are spelt \u001b, bytes that are not UTF-8 become U+FFFD.
std::string shown_name(std::string_view name, std::size_t max_bytes = 100);

/// Whether there is a control character (C0, DEL or C1) in `name`, which is UTF-8.
bool has_control_character(std::string_view name);

}  // namespace trireme::files
