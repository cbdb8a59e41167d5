#include "trireme/data/tokenizer/stream_decoder.hpp"

#include <algorithm>

#include "trireme/base/utf8.hpp"
#include "trireme/data/tokenizer/unicode.hpp"

namespace trireme::data {
namespace {

/// The number of bytes at the end of `text` that are an incomplete but still valid character.
std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    // Whether it can be completed: try the smallest and the largest possible continuation bytes.
    const std::string begun(text.substr(text.size() - back));
    const std::size_t wanted = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC2 ? 2 : 1;
    if (wanted <= back) return 0;
    for (const char fill : {'\x80', '\xBF'})
      if (first_code_point(begun + std::string(wanted - back, fill)).well_formed) return back;
    return 0;
  }
  return 0;
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : detokenizer_(tokenizer, skip_special_tokens) {}

std::string StreamDecoder::push(TokenId id) {
  detokenizer_.append(id, pending_);
  return whole_part();
}

std::string StreamDecoder::whole_part() {
  const std::size_t whole = pending_.size() - unfinished_bytes(pending_);
  std::string out = valid_utf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out = valid_utf8(pending_);
  pending_.clear();
  return out;
}

}  // namespace trireme::data
