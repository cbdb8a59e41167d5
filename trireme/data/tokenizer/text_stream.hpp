#pragma once
// The text of generated tokens in pieces that can be printed at once, up to a stop string.
#include <span>
#include <string>
#include <vector>

#include "trireme/data/tokenizer/stream_decoder.hpp"

namespace trireme::data {

/// Returns neither half a character (StreamDecoder) nor the beginning of what may become a stop string.
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

  StreamDecoder decoder_;
  std::vector<std::string> stop_strings_;
  std::string held_;  // decoded, not returned yet
  bool stopped_ = false;
};

}  // namespace trireme::data
