#include "trireme/data/tokenizer/unigram.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/unicode.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {
namespace {

struct Cut {
  std::size_t begin = 0, end = 0;
  TokenId id = 0;
};

template <class Score>
struct BestEnd {  // the best way to cut the text up to here
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  Score score = 0;
  std::size_t begin = kNowhere;  // of its last token
  TokenId id = kNoToken;

  void offer(Score other, std::size_t from, TokenId token) {
    if (begin == kNowhere || other > score) *this = {other, from, token};
  }
};

// Sums of many scores in single precision lose digits: the reference starts again from 0 when they become large.
void keep_small(std::vector<BestEnd<float>>& ends, std::size_t at, std::size_t last) {
  constexpr float kLarge = 100'000;
  const float sum = ends[at].score;
  if (sum >= -kLarge && sum <= kLarge) return;
  for (std::size_t i = at; i <= last; ++i)
    if (i == at || ends[i].begin != BestEnd<float>::kNowhere) ends[i].score -= sum;
}
void keep_small(std::vector<BestEnd<double>>&, std::size_t, std::size_t) {}

/// The best cut of `word`, from its end to its beginning.
template <class Score>
std::vector<Cut> best_cut(const UnigramModel& model, std::string_view word) {
  std::vector<BestEnd<Score>> ends(word.size() + 1);
  const auto unknown_score = static_cast<Score>(model.unknown_score);
  std::size_t last = 0;  // the last end that was offered anything
  for (std::size_t at = 0; at < word.size();) {
    keep_small(ends, at, last);
    const Score here = ends[at].score;
    const std::size_t character = first_code_point(word.substr(at)).bytes;
    bool has_token = false;
    model.pieces.for_each_prefix(word.substr(at), [&](std::size_t length, TokenId id) {
      ends[at + length].offer(static_cast<Score>(model.scores[id]) + here, at, id);
      last = std::max(last, at + length);
      has_token |= length == character;
    });
    if (!has_token) {
      require<DataError>(model.unknown.has_value(), "the character ", files::shown_name(word.substr(at, character)),
                         " has no token, and the tokenizer has none for unknown characters (unk_id)");
      ends[at + character].offer(unknown_score + here, at, *model.unknown);
      last = std::max(last, at + character);
    }
    at += character;
  }
  std::vector<Cut> cuts;
  for (std::size_t end = word.size(); end > 0; end = ends[end].begin)
    cuts.push_back({ends[end].begin, end, ends[end].id});
  return cuts;
}

/// What has no token: its bytes, or one token for all of it.
void append_unknown(const UnigramModel& model, std::string_view part, std::vector<TokenId>& out) {
  // Unknown characters next to each other may spell a token in tokenizers, as "<unk>" itself does.
  if (model.reference == UnigramModel::Reference::tokenizers)
    if (const TokenId id = model.pieces.find(part); id != ByteTrie::kNone) return out.push_back(id);
  if (model.byte_fallback && model.fallbacks.append(part, out)) return;
  out.push_back(*model.unknown);
}

}  // namespace

void UnigramModel::append(std::string_view word, std::vector<TokenId>& out) const {
  const std::vector<Cut> cuts =
      reference == Reference::sentencepiece ? best_cut<float>(*this, word) : best_cut<double>(*this, word);
  for (auto cut = cuts.rbegin(); cut != cuts.rend();) {
    if (cut->id != unknown) {
      out.push_back((cut++)->id);
      continue;
    }
    const std::size_t begin = cut->begin;
    std::size_t end = begin;
    for (; cut != cuts.rend() && cut->id == unknown; ++cut) end = cut->end;
    append_unknown(*this, word.substr(begin, end - begin), out);
  }
}

}  // namespace trireme::data
