#pragma once
// The text of tokens that arrive one by one, in pieces that can be printed at once.
#include <span>
#include <string>
#include <vector>

#include "trireme/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// Never returns half a character, nor the beginning of what may become a stop string.
class TextStream {
 public:
  /// `before`: the tokens that the text continues, which decide about a space at its beginning.
  TextStream(const Tokenizer& tokenizer, std::span<const TokenId> before, std::vector<std::string> stop_strings = {});

  /// What can be printed now; may be empty. After a stop string nothing follows.
  std::string add(TokenId token);
  /// What was held back, when no token will follow.
  std::string finish();
  /// Whether a stop string has come. It is not part of the text.
  bool stopped() const { return stopped_; }

 private:
  std::string release(bool is_end);

  const Tokenizer& tokenizer_;
  const std::vector<std::string> stop_strings_;
  std::vector<TokenId> tokens_;  // the last that were decoded, and those after them
  std::size_t decoded_ = 0;      // of tokens_
  std::string held_;             // decoded, not returned yet
  bool stopped_ = false;
};

/// The number of bytes before a sequence of UTF-8 that is cut off at the end of `text`.
std::size_t whole_characters(std::string_view text);

}  // namespace trireme::data
