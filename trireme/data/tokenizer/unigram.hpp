#pragma once
// The unigram model: of all ways to cut a word into tokens, the one with the highest sum of scores.
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/byte_fallback.hpp"
#include "trireme/data/tokenizer/byte_trie.hpp"

namespace trireme::data {

struct UnigramModel {
  // The two references add scores in different precisions, which decides between cuts that are equally good.
  enum class Reference { tokenizers, sentencepiece };
  Reference reference = Reference::tokenizers;
  ByteTrie pieces;             // those that can be found in a text
  std::vector<double> scores;  // by id
  double unknown_score = 0;    // of a character without a token
  std::optional<TokenId> unknown;
  ByteFallbacks fallbacks;
  bool byte_fallback = false;

  /// DataError for a character without a token if there is no token for unknown ones.
  void append(std::string_view word, std::vector<TokenId>& out) const;
};

}  // namespace trireme::data
