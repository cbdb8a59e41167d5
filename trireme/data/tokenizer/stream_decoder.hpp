#pragma once
// Incremental detokenizer: decodes tokens one at a time and never emits a partial UTF-8 character.
#include <string>
#include <vector>

#include "trireme/data/tokenizer/detokenizer.hpp"
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

  Detokenizer detokenizer_;
  std::string pending_;
};

}  // namespace trireme::data
