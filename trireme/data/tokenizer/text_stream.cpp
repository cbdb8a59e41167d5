#include "trireme/data/tokenizer/text_stream.hpp"

#include <algorithm>

namespace trireme::data {
namespace {

/// The length of the longest end of `text` that is the beginning, not the whole, of `word`.
std::size_t begun(std::string_view text, std::string_view word) {
  for (std::size_t n = std::min(text.size(), word.size() - 1); n > 0; --n)
    if (text.substr(text.size() - n) == word.substr(0, n)) return n;
  return 0;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const TokenId> before,
                       std::vector<std::string> stop_strings)
    : decoder_(tokenizer, /*skip_special_tokens=*/true), stop_strings_(std::move(stop_strings)) {
  std::erase(stop_strings_, "");
  for (const TokenId token : before) decoder_.push(token);
}

std::string TextStream::add(TokenId token) {
  if (stopped_) return "";
  held_ += decoder_.push(token);
  return release(/*is_end=*/false);
}

std::string TextStream::finish() {
  if (stopped_) return "";
  held_ += decoder_.finish();
  return release(/*is_end=*/true);
}

std::string TextStream::release(bool is_end) {
  std::size_t end = std::string::npos, keep = 0;
  for (const std::string& stop : stop_strings_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    stopped_ = true;
    held_.resize(end);
  } else if (!is_end) {
    for (const std::string& stop : stop_strings_) keep = std::max(keep, begun(held_, stop));
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

}  // namespace trireme::data
