#pragma once
// The WordPiece model (BERT): the longest token that a word begins with, then the longest that the rest begins with.
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/byte_trie.hpp"
#include "trireme/data/tokens/token_id.hpp"

namespace trireme::data {

class WordPieceModel {
 public:
  WordPieceModel() = default;
  /// `prefix`: of tokens that do not begin a word. A word of more than `most_characters` is unknown.
  WordPieceModel(ByteTrie tokens, std::string_view prefix, TokenId unknown, std::size_t most_characters)
      : tokens_(std::move(tokens)),
        inside_(tokens_.node_of(prefix)),
        unknown_(unknown),
        most_characters_(most_characters) {}

  void append(std::string_view word, std::vector<TokenId>& out) const;

 private:
  ByteTrie tokens_;
  std::uint32_t inside_ = ByteTrie::kNone;  // where the tokens that do not begin a word are
  TokenId unknown_ = 0;
  std::size_t most_characters_ = 0;
};

}  // namespace trireme::data
