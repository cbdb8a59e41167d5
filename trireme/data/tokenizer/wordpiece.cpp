#include "trireme/data/tokenizer/wordpiece.hpp"

#include "trireme/data/tokenizer/unicode.hpp"

namespace trireme::data {

void WordPieceModel::append(std::string_view word, std::vector<TokenId>& out) const {
  const std::size_t before = out.size();
  // All or nothing: if a part of the word has no token, the word has none.
  const auto give_up = [&] {
    out.resize(before);
    out.push_back(unknown_);
  };
  std::size_t characters = 0;
  for (std::string_view rest = word; !rest.empty(); rest.remove_prefix(first_code_point(rest).bytes))
    if (++characters > most_characters_) return give_up();
  std::uint32_t from = ByteTrie::kRoot;
  while (!word.empty()) {
    const ByteTrie::Match found = tokens_.longest(word, from);
    if (found.length == 0) return give_up();
    out.push_back(found.value);
    word.remove_prefix(found.length);
    from = inside_;
  }
}

}  // namespace trireme::data
