#pragma once
// Printing JSON, for the files this folder writes; reading it is left to the folders that have a JSON library.
#include <concepts>
#include <string>
#include <string_view>

namespace trireme {

/// `text` in quotes and escaped. Bytes that are not UTF-8 become U+FFFD, so the result is valid JSON whatever comes in.
std::string json_string(std::string_view text);

/// The shortest digits that read back as the same number. JSON has no numbers for NaN and the infinities: they are
/// written as the strings "NaN", "Infinity" and "-Infinity", which float() of Python and Number() of JavaScript take.
std::string json_number(double value);

template <std::integral T>
  requires(!std::same_as<T, bool>)
std::string json_number(T value) {
  return std::to_string(value);
}

}  // namespace trireme
