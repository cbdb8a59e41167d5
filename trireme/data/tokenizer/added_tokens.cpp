#include "trireme/data/tokenizer/added_tokens.hpp"

#include <algorithm>

#include "trireme/data/tokenizer/unicode.hpp"

namespace trireme::data {
namespace {

bool is_space(std::string_view one) { return ClassTable::get()[first_code_point(one).value] & CharClass::space; }

/// The start of the character before `at`.
std::size_t before(std::string_view text, std::size_t at) {
  std::size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin + first_code_point(text.substr(begin)).bytes == at ? begin : at - 1;
}

bool is_word(std::string_view one) { return is_word_character(first_code_point(one).value); }

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin == 0 || !is_word(text.substr(before(text, begin)))) &&
         (end == text.size() || !is_word(text.substr(end)));
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  for (std::size_t i = 0; i < tokens_.size(); ++i) trie_.add(tokens_[i].content, static_cast<std::uint32_t>(i));
  const auto first = [](const AddedToken& token) { return static_cast<unsigned char>(token.content[0]); };
  if (!empty() && std::ranges::all_of(tokens_, [&](const AddedToken& t) { return first(t) == first(tokens_[0]); }))
    only_start_ = first(tokens_[0]);
}

std::size_t AddedTokenFinder::next_start(std::string_view text, std::size_t from) const {
  if (only_start_ >= 0) return std::min(text.find(static_cast<char>(only_start_), from), text.size());
  while (from < text.size() && !trie_.may_begin_with(text[from])) ++from;
  return from;
}

std::vector<AddedTokenFinder::Hit> AddedTokenFinder::find(std::string_view text, bool special) const {
  std::vector<Hit> hits;
  if (empty()) return hits;
  std::size_t done = 0;
  for (std::size_t at = next_start(text, 0); at < text.size(); at = next_start(text, at)) {
    const ByteTrie::Match found = trie_.longest(text.substr(at));
    if (found.length == 0) {
      ++at;
      continue;
    }
    const AddedToken* token = &tokens_[found.value];
    std::size_t begin = at, end = at + token->content.size();
    at = end;
    if (!special && token->special) continue;
    if (token->whole_word && !stands_alone(text, begin, end)) continue;
    if (token->strip_left)
      while (begin > done && is_space(text.substr(before(text, begin)))) begin = before(text, begin);
    if (token->strip_right)
      while (end < text.size() && is_space(text.substr(end))) end += first_code_point(text.substr(end)).bytes;
    hits.push_back({begin, end, token});
    done = end;  // but the search continues after the token: white space may be a token too, as in the reference
  }
  return hits;
}

}  // namespace trireme::data
