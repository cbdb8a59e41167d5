#pragma once
// Normalizers of a tokenizer.json that look at one character, or one character with its accents, at a time.
#include <string>
#include <string_view>

#include "trireme/data/tokenizer/charsmap.hpp"

namespace trireme::data {

/// Removes control characters, and makes spaces of others ("Nmt").
struct CleanForNmt {};
struct LowerCase {};
struct StripAccents {};
/// Removes white space at the ends ("Strip").
struct StripSpace {
  bool left = true, right = true;
};
/// "BertNormalizer"
struct NormalizeForBert {
  bool clean = true;             // without control characters; white space of all kinds becomes a space
  bool separate_chinese = true;  // spaces around ideographs
  bool strip_accents = true;
  bool lower_case = true;
};
/// "Precompiled": SentencePiece's rules as `tokenizers` applies them, to graphemes.
struct ApplyCharsmap {
  Charsmap rules;
};

/// `text` must be UTF-8.
std::string applied(const CleanForNmt& step, std::string_view text);
std::string applied(const LowerCase& step, std::string_view text);
std::string applied(const StripAccents& step, std::string_view text);
std::string applied(const StripSpace& step, std::string_view text);
std::string applied(const NormalizeForBert& step, std::string_view text);
std::string applied(const ApplyCharsmap& step, std::string_view text);

}  // namespace trireme::data
