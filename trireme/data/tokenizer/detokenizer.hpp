#pragma once
// From tokens to bytes, token by token.
#include <string>

#include "trireme/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

class Detokenizer {
 public:
  /// `tokenizer` must outlive it.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);

  /// Appends the bytes of the next token to `out`; DataError for a token outside the vocabulary.
  void append(TokenId id, std::string& out);

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  bool first_ = true, leads_ = true;
  std::size_t spaces_to_strip_ = 0;
};

}  // namespace trireme::data
