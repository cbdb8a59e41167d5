#pragma once
// Incremental detokenizer: decodes tokens one at a time and never emits a partial UTF-8 character.
#include <string>
#include <vector>

#include "trireme/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = false);

  /// Returns the text that is now complete: empty while a character is incomplete. Invalid byte sequences are returned
  /// as U+FFFD.
  std::string push(TokenId id);
  /// Flushes at the end: U+FFFD for an incomplete character.
  std::string finish();

 private:
  std::string whole_part();

  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::string pending_;
  bool first_ = true;
  std::size_t spaces_to_strip_ = 0;
};

}  // namespace trireme::data
