#pragma once
// Unicode: UTF-8 decoding and encoding, character classes as in regular expressions, and normal forms.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::data {

/// The character classes that pre-tokenizers distinguish, as bits.
struct CharClass {
  enum : std::uint8_t {
    letter = 1,       // \p{L}
    number = 2,       // \p{N}
    space = 4,        // \s: Unicode's White_Space
    line_break = 8,   // \r and \n
    may_compose = 16  // may change in NFC, alone or with its neighbours
  };
};

struct CodePoint {
  char32_t value = 0;  // U+FFFD for a byte that is not part of a character
  unsigned bytes = 0;
  bool well_formed = true;
};

/// The character at the beginning of `text`, which must not be empty. A byte that cannot begin one, or without its
/// continuation bytes, stands alone.
CodePoint first_code_point(std::string_view text);
bool is_utf8(std::string_view text);
void append_utf8(std::string& out, char32_t value);

/// The classes of every code point in Unicode 15 (utf8proc 2.8), one byte each: 1.1 MB, built at the first call (some
/// milliseconds).
class ClassTable {
 public:
  static const ClassTable& get();
  std::uint8_t operator[](char32_t value) const { return classes_[value]; }

 private:
  ClassTable();
  std::string classes_storage_;
  const std::uint8_t* classes_;
};

/// What \w matches in the reference: letters, marks, decimal digits, letter-like numbers, connectors such as _, and
/// joiners.
bool is_word_character(char32_t value);

/// In lower case; one character may become two.
void append_lower_case(std::string& out, char32_t value);

/// The bytes of the first character as a reader sees it (an extended grapheme cluster): a letter with its accents.
/// `text` must not be empty.
std::size_t first_grapheme_bytes(std::string_view text);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
/// `text` must be UTF-8.
std::string normalised(std::string_view text, NormalForm form);
/// False only if NFC leaves `text` unchanged; fast, with false positives.
bool may_change_in_nfc(std::string_view text);

}  // namespace trireme::data
