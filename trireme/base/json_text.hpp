#pragma once
// JSON output for the files written by this folder; parsing is done in the folders that have a JSON library.
#include <concepts>
#include <string>
#include <string_view>

namespace trireme {

/// `text` quoted and escaped. Invalid UTF-8 becomes U+FFFD, so the result is valid JSON for any input.
std::string json_string(std::string_view text);

/// The shortest digits that parse back to the same number. JSON has no NaN or infinities: they are written as the
/// strings "NaN", "Infinity" and "-Infinity", which Python's float() and JavaScript's Number() accept.
std::string json_number(double value);

template <std::integral T>
  requires(!std::same_as<T, bool>)
std::string json_number(T value) {
  return std::to_string(value);
}

}  // namespace trireme
