#pragma once
// SentencePiece's BPE model. Unlike that of `tokenizers`, it merges any two neighbours that spell a piece together,
// even characters that are no pieces themselves.
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/bpe.hpp"
#include "trireme/data/tokenizer/byte_fallback.hpp"
#include "trireme/data/tokenizer/byte_trie.hpp"

namespace trireme::data {

struct SentencePieceBpe {
  struct Piece {
    std::string_view bytes;
    TokenId id = 0;
    float score = 0;  // of two possible merges, that with the higher score is made first
  };

  SentencePieceBpe() = default;
  /// `pieces`: those that merges make. `user_defined` are never merged. Ids are below `vocab_size`.
  SentencePieceBpe(std::vector<Piece> pieces, ByteTrie user_defined, TokenId vocab_size, const std::string& name);

  TokenId unknown = 0;
  ByteFallbacks fallbacks;
  bool byte_fallback = false;

  void append(std::string_view word, std::vector<TokenId>& out) const;

 private:
  void append_unknown(std::string_view character, bool goes_on, std::vector<TokenId>& out) const;

  MergeTable merges_;
  ByteTrie user_defined_;
  TokenMap symbols_;                     // of single characters; from vocab_size_ on: characters that are no pieces
  std::vector<std::string> characters_;  // those
  TokenId vocab_size_ = 0;
};

}  // namespace trireme::data
