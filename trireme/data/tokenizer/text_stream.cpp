#include "trireme/data/tokenizer/text_stream.hpp"

#include <algorithm>

#include "trireme/base/utf8.hpp"

namespace trireme::data {
namespace {

// Of the tokens before: enough for the longest character and for what a decoder looks at.
constexpr std::size_t kContextTokens = 8;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// The length of the longest end of `text` that is the beginning, not the whole, of `word`.
std::size_t begun(std::string_view text, std::string_view word) {
  for (std::size_t n = std::min(text.size(), word.size() - 1); n > 0; --n)
    if (text.substr(text.size() - n) == word.substr(0, n)) return n;
  return 0;
}

}  // namespace

std::size_t whole_characters(std::string_view text) {
  // A sequence has at most four bytes: the last three may be the beginning of one.
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) break;
    if (byte < 0xC0) continue;  // in the middle of one
    const std::size_t needed = byte >= 0xF8 ? 1 : byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;  // 1: none begins with it
    return needed > back ? text.size() - back : text.size();
  }
  return text.size();
}

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const TokenId> before,
                       std::vector<std::string> stop_strings)
    : tokenizer_(tokenizer), stop_strings_(std::move(stop_strings)) {
  const std::span<const TokenId> last = before.last(std::min(before.size(), kContextTokens));
  tokens_.assign(last.begin(), last.end());
  decoded_ = tokens_.size();
}

std::string TextStream::add(TokenId token) {
  if (stopped_) return "";
  tokens_.push_back(token);
  const std::string known = tokenizer_.decode(std::span(tokens_).first(decoded_), true);
  std::string now = tokenizer_.decode(tokens_, true);
  // Some decoders write U+FFFD for a character that is not complete; after four tokens none can be.
  const bool is_cut =
      whole_characters(now) < now.size() || (now.ends_with(kReplacement) && tokens_.size() - decoded_ < 4);
  if (is_cut || now.size() < known.size() || !now.starts_with(known)) return "";
  held_ += now.substr(known.size());
  const std::size_t keep = std::min(tokens_.size(), kContextTokens);
  tokens_.erase(tokens_.begin(), tokens_.end() - static_cast<std::ptrdiff_t>(keep));
  decoded_ = tokens_.size();
  return release(/*is_end=*/false);
}

std::string TextStream::finish() {
  if (stopped_) return "";
  const std::string known = tokenizer_.decode(std::span(tokens_).first(decoded_), true);
  const std::string now = tokenizer_.decode(tokens_, true);
  if (now.size() > known.size()) held_ += now.substr(known.size());
  decoded_ = tokens_.size();
  return release(/*is_end=*/true);
}

std::string TextStream::release(bool is_end) {
  std::size_t end = std::string::npos;
  for (const std::string& stop : stop_strings_)
    if (!stop.empty()) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    stopped_ = true;
    held_.resize(end);
  }
  std::size_t keep = 0;
  if (!stopped_ && !is_end)
    for (const std::string& stop : stop_strings_)
      if (!stop.empty()) keep = std::max(keep, begun(held_, stop));
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return valid_utf8(out);
}

}  // namespace trireme::data
