#pragma once
// How byte-level tokenizers spell bytes in their files: as printable characters, so that a vocabulary is text.
#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

/// The character of a byte: itself where it is printable Latin-1, else one of U+0100 ... U+0143, in order.
char32_t char_of_byte(unsigned char byte);
/// "Ġthe" of " the".
std::string spelt_as_characters(std::string_view bytes);
/// " the" of "Ġthe"; nothing when a character stands for no byte.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

}  // namespace trireme::data
