#include "trireme/data/tokenizer/sentencepiece_bpe.hpp"

#include <algorithm>

#include "trireme/data/tokenizer/merges_of_tokens.hpp"
#include "trireme/data/tokenizer/unicode.hpp"

namespace trireme::data {
namespace {

bool is_one_character(std::string_view bytes) { return first_code_point(bytes).bytes == bytes.size(); }

}  // namespace

SentencePieceBpe::SentencePieceBpe(std::vector<Piece> pieces, ByteTrie user_defined, TokenId vocab_size,
                                   const std::string& name)
    : user_defined_(std::move(user_defined)), vocab_size_(vocab_size) {
  TokenMap ids;
  for (const Piece& piece : pieces) {
    ids.emplace(piece.bytes, piece.id);
    if (is_one_character(piece.bytes)) symbols_.emplace(piece.bytes, piece.id);
  }
  const auto half = [&](std::string_view bytes) {
    if (const auto found = ids.find(bytes); found != ids.end()) return found->second;
    if (!is_one_character(bytes) || user_defined_.find(bytes) != ByteTrie::kNone) return kNoToken;
    const auto id = static_cast<TokenId>(vocab_size_ + characters_.size());
    if (!symbols_.emplace(bytes, id).second) return symbols_.find(bytes)->second;
    characters_.emplace_back(bytes);
    return id;
  };
  // Merges with the same score have the same rank: the leftmost is made first.
  std::ranges::stable_sort(pieces, std::ranges::greater(), &Piece::score);
  MergesOfTokens merges(name);
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0 && pieces[i].score != pieces[i - 1].score) ++rank;
    merges.add(pieces[i].bytes, pieces[i].id, rank, half);
  }
  merges_ = merges.table();
}

void SentencePieceBpe::append_unknown(std::string_view character, bool goes_on, std::vector<TokenId>& out) const {
  if (byte_fallback && fallbacks.append(character, out)) return;
  if (!goes_on) out.push_back(unknown);  // one for all unknown characters in a row
}

void SentencePieceBpe::append(std::string_view word, std::vector<TokenId>& out) const {
  const auto first_nameless = static_cast<TokenId>(vocab_size_ + characters_.size());
  std::vector<std::string_view> nameless;  // characters that are in no piece, numbered on from there
  std::vector<TokenId> symbols;
  symbols.reserve(word.size());
  while (!word.empty()) {
    ByteTrie::Match whole;
    if (user_defined_.may_begin_with(word[0])) whole = user_defined_.longest(word);
    if (whole.length > 0) {
      symbols.push_back(whole.value);
      word.remove_prefix(whole.length);
      continue;
    }
    const std::string_view character = word.substr(0, first_code_point(word).bytes);
    word.remove_prefix(character.size());
    if (const auto known = symbols_.find(character); known != symbols_.end()) {
      symbols.push_back(known->second);
    } else {
      symbols.push_back(static_cast<TokenId>(first_nameless + nameless.size()));
      nameless.push_back(character);
    }
  }
  merges_.apply(symbols);
  bool was_unknown = false;
  for (const TokenId id : symbols) {
    const bool is_unknown = id >= vocab_size_;
    if (!is_unknown)
      out.push_back(id);
    else if (id >= first_nameless)
      append_unknown(nameless[id - first_nameless], was_unknown, out);
    else
      append_unknown(characters_[id - vocab_size_], was_unknown, out);
    was_unknown = is_unknown;
  }
}

}  // namespace trireme::data
