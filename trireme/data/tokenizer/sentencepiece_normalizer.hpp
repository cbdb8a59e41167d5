#pragma once
// SentencePiece's own normalization of a text, white space included.
#include <optional>
#include <string>
#include <string_view>

#include "trireme/data/tokenizer/byte_trie.hpp"
#include "trireme/data/tokenizer/charsmap.hpp"

namespace trireme::data {

inline constexpr std::string_view kSpaceMark = "\u2581";  // stands for a space in pieces

struct SentencePieceNormalizer {
  std::optional<Charsmap> rules;
  ByteTrie user_defined;         // symbols to which no rule is applied
  bool dummy_prefix = true;      // a space before the text
  bool space_as_suffix = false;  // behind it instead
  bool remove_extra_space = true;
  bool escape_space = true;  // to kSpaceMark

  /// `begins`: whether the dummy space is wanted. `text` may be any bytes: each that is not UTF-8 becomes U+FFFD.
  std::string operator()(std::string_view text, bool begins) const;

 private:
  Charsmap::Rule first_part(std::string_view text) const;
};

}  // namespace trireme::data
