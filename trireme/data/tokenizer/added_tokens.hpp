#pragma once
// Added tokens such as <|endoftext|>, which are matched in the text before the pre-tokenizers run.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/byte_trie.hpp"
#include "trireme/data/tokens/token_id.hpp"

namespace trireme::data {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;      // skipped by decode() on request
  bool normalised = false;   // matched after normalization, not before
  bool strip_left = false;   // also consumes white space before it
  bool strip_right = false;  // also consumes white space after it
  bool whole_word = false;   // only if not adjacent to a letter, number or _
};

/// Matches added tokens in a text: leftmost first, then longest.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  struct Hit {
    std::size_t begin = 0, end = 0;  // bytes, including the consumed white space
    const AddedToken* token = nullptr;
  };
  /// `special` = false: special tokens are not matched and treated as ordinary text.
  std::vector<Hit> find(std::string_view text, bool special = true) const;
  bool empty() const { return tokens_.empty(); }

 private:
  std::size_t next_start(std::string_view text, std::size_t from) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;        // the index in tokens_
  int only_start_ = -1;  // all tokens begin with this byte
};

}  // namespace trireme::data
