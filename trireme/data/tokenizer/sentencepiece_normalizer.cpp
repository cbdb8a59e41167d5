#include "trireme/data/tokenizer/sentencepiece_normalizer.hpp"

#include "trireme/data/tokenizer/unicode.hpp"

namespace trireme::data {

/// What `text` begins with, and what becomes of it.
Charsmap::Rule SentencePieceNormalizer::first_part(std::string_view text) const {
  if (user_defined.may_begin_with(text[0]))
    if (const std::size_t length = user_defined.longest(text).length; length > 0)
      return {length, text.substr(0, length)};
  if (rules)
    if (const auto rule = rules->longest(text)) return *rule;
  const CodePoint c = first_code_point(text);
  return {c.bytes, c.well_formed ? text.substr(0, c.bytes) : std::string_view("\uFFFD")};
}

std::string SentencePieceNormalizer::operator()(std::string_view text, bool begins) const {
  if (remove_extra_space)
    while (!text.empty()) {
      const Charsmap::Rule part = first_part(text);
      if (part.by != " ") break;
      text.remove_prefix(part.length);
    }
  if (text.empty()) return {};
  const std::string_view space = escape_space ? kSpaceMark : std::string_view(" ");
  const bool dummy = dummy_prefix && begins;
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  if (dummy && !space_as_suffix) out += space;
  bool behind_space = remove_extra_space;
  while (!text.empty()) {
    auto [length, by] = first_part(text);
    text.remove_prefix(length);
    while (behind_space && by.starts_with(' ')) by.remove_prefix(1);
    if (by.empty()) continue;
    for (const char c : by)
      if (c == ' ')
        out += space;
      else
        out += c;
    behind_space = remove_extra_space && by.ends_with(' ');
  }
  if (remove_extra_space)
    while (out.ends_with(space)) out.erase(out.size() - space.size());
  if (dummy && space_as_suffix) out += space;
  return out;
}

}  // namespace trireme::data
