#pragma once
// The byte-to-character mapping of byte-level BPE: bytes as printable characters, so that a vocabulary file is text.
#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

/// The character of a byte: the byte itself if it is printable Latin-1, else one of U+0100 ... U+0143, in order.
char32_t char_of_byte(unsigned char byte);
/// " the" -> "Ġthe"
std::string spelt_as_characters(std::string_view bytes);
/// "Ġthe" -> " the"; nullopt if a character does not map to a byte.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

}  // namespace trireme::data
