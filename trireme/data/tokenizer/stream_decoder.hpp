#pragma once
// Text from tokens as they come, one at a time, that never ends inside a character.
#include <string>
#include <vector>

#include "trireme/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = false);

  /// The text that is whole now: nothing while a character has begun and not ended. Bytes that can no longer become a character come as
  /// U+FFFD.
  std::string push(TokenId id);
  /// What is left when no more tokens come: U+FFFD for a character that never ended.
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
