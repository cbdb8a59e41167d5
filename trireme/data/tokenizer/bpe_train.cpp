#include "trireme/data/tokenizer/bpe_train.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/byte_alphabet.hpp"

namespace trireme::data {
namespace {

using Pair = std::uint64_t;  // left << 32 | right: sorts like the reference's pairs
constexpr Pair pair_of(TokenId left, TokenId right) { return Pair{left} << 32 | right; }

/// A growing hash table of counts by pair.
class PairCounts {
 public:
  PairCounts() : entries_(1 << 16) {}

  std::int64_t& operator[](Pair pair) {
    if (used_ * 2 > entries_.size()) grow();
    Entry& entry = *find(pair);
    if (entry.pair == kEmpty) {
      entry.pair = pair;
      ++used_;
    }
    return entry.count;
  }

 private:
  static constexpr Pair kEmpty = ~Pair{0};
  struct Entry {
    Pair pair = kEmpty;
    std::int64_t count = 0;
  };
  Entry* find(Pair pair) {
    std::size_t at = (pair * 0x9E3779B97F4A7C15) >> 20 & (entries_.size() - 1);
    while (entries_[at].pair != kEmpty && entries_[at].pair != pair) at = (at + 1) & (entries_.size() - 1);
    return &entries_[at];
  }
  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& entry : old)
      if (entry.pair != kEmpty) *find(entry.pair) = entry;
  }
  std::vector<Entry> entries_;
  std::size_t used_ = 0;
};

/// A pair that may be merged next, and the words that contain it.
struct Candidate {
  std::int64_t count = 0;
  Pair pair = 0;
  std::vector<std::uint32_t> words;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Trainer {
 public:
  Trainer(const WordCounts& counts, const BpeTrainOptions& options) : counts_(counts) {
    out_.options = options;
    const auto least = static_cast<std::int64_t>(options.special_tokens.size()) + 256;
    require<ConfigError>(options.vocab_size >= least, "a vocabulary of ", options.vocab_size,
                         " tokens has no room for 256 bytes and ", options.special_tokens.size(),
                         " special tokens\n  fix: at least ", least);
    require<ConfigError>(options.vocab_size < (1 << 24), "a vocabulary of ", options.vocab_size,
                         " tokens; at most 2^24 - 1");
    check_special_tokens();
    add_first_tokens();
    split_words();
  }

  TrainedBpe run(const std::function<void(std::int64_t)>& progress) {
    while (static_cast<std::int64_t>(out_.tokens.size()) < out_.options.vocab_size && !queue_.empty()) {
      Candidate top = pop();
      const std::int64_t now = pair_counts_[top.pair];
      if (top.count != now) {  // stale: other merges have reduced its count since it was queued
        top.count = now;
        if (now > 0) push(std::move(top));
        continue;
      }
      if (top.count < 1 || static_cast<std::uint64_t>(top.count) < out_.options.min_frequency) break;
      merge(top);
      if (out_.merges.size() % 256 == 0) progress(static_cast<std::int64_t>(out_.tokens.size()));
    }
    return std::move(out_);
  }

 private:
  struct Word {
    std::size_t begin = 0;
    std::uint32_t length = 0;
  };

  /// A special token that could occur as a word, or part of one, would need two tokens with the same text.
  void check_special_tokens() const {
    std::set<std::string> seen;
    for (const std::string& token : out_.options.special_tokens) {
      WordCounts words;
      count_words(token, out_.options.pattern, words);
      require<ConfigError>(words.size() > 1 || (words.size() == 1 && words.count(0) > 1), "the special token \"", token,
                           "\" is an ordinary word\n  fix: a text of several words, such as <|", token, "|>");
      require<ConfigError>(seen.insert(token).second, "the special token \"", token, "\" is given twice");
    }
  }

  /// Special tokens, then bytes in the order of their characters in the byte alphabet.
  void add_first_tokens() {
    out_.tokens = out_.options.special_tokens;
    std::array<unsigned char, 256> bytes;
    std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
    std::ranges::sort(bytes, {}, char_of_byte);
    for (const unsigned char byte : bytes) {
      byte_ids_[byte] = static_cast<TokenId>(out_.tokens.size());
      ids_.emplace(std::string(1, static_cast<char>(byte)), byte_ids_[byte]);
      out_.tokens.emplace_back(1, static_cast<char>(byte));
    }
  }

  void split_words() {
    std::vector<std::pair<Pair, std::uint32_t>> where;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      const std::string_view word = counts_.word(i);
      words_.push_back({symbols_.size(), static_cast<std::uint32_t>(word.size())});
      for (const char byte : word) symbols_.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
      const TokenId* symbols = symbols_.data() + words_.back().begin;
      for (std::size_t k = 0; k + 1 < word.size(); ++k) {
        const Pair pair = pair_of(symbols[k], symbols[k + 1]);
        pair_counts_[pair] += static_cast<std::int64_t>(counts_.count(i));
        where.emplace_back(pair, static_cast<std::uint32_t>(i));
      }
    }
    queue_places(where);
  }

  /// Queues a candidate for each pair in `where`, with its words.
  void queue_places(std::vector<std::pair<Pair, std::uint32_t>>& where) {
    std::ranges::sort(where);
    where.erase(std::ranges::unique(where).begin(), where.end());
    for (auto at = where.begin(); at != where.end();) {
      Candidate candidate{pair_counts_[at->first], at->first, {}};
      const auto end = std::find_if(at, where.end(), [&](const auto& place) { return place.first != candidate.pair; });
      if (candidate.count > 0) {
        candidate.words.reserve(static_cast<std::size_t>(end - at));
        for (auto place = at; place != end; ++place) candidate.words.push_back(place->second);
        push(std::move(candidate));
      }
      at = end;
    }
  }

  void push(Candidate candidate) {
    queue_.push_back(std::move(candidate));
    std::push_heap(queue_.begin(), queue_.end());
  }
  Candidate pop() {
    std::pop_heap(queue_.begin(), queue_.end());
    Candidate top = std::move(queue_.back());
    queue_.pop_back();
    return top;
  }

  // The same bytes can be merged in two ways: the token then exists already, and the second way is a separate merge.
  // The count of a merged pair is kept, as in the reference, where such a pair may come back.
  void merge(const Candidate& top) {
    const auto left = static_cast<TokenId>(top.pair >> 32), right = static_cast<TokenId>(top.pair & 0xFFFFFFFF);
    std::string bytes = out_.tokens[left] + out_.tokens[right];
    const auto [known, is_new] = ids_.emplace(std::move(bytes), static_cast<TokenId>(out_.tokens.size()));
    const TokenId made = known->second;
    if (is_new) out_.tokens.push_back(known->first);
    out_.merges.push_back({left, right, made});
    fresh_.clear();
    for (const std::uint32_t word : top.words) merge_in(word, left, right, made);
    queue_places(fresh_);
  }

  void merge_in(std::uint32_t index, TokenId left, TokenId right, TokenId made) {
    Word& word = words_[index];
    TokenId* symbols = symbols_.data() + word.begin;
    const auto times = static_cast<std::int64_t>(counts_.count(index));
    const auto lost = [&](TokenId a, TokenId b) { pair_counts_[pair_of(a, b)] -= times; };
    const auto won = [&](TokenId a, TokenId b) {
      pair_counts_[pair_of(a, b)] += times;
      fresh_.emplace_back(pair_of(a, b), index);
    };
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < word.length;) {
      if (i + 1 < word.length && symbols[i] == left && symbols[i + 1] == right) {
        if (kept > 0) {
          lost(symbols[kept - 1], left);
          won(symbols[kept - 1], made);
        }
        if (i + 2 < word.length) {
          lost(right, symbols[i + 2]);
          won(made, symbols[i + 2]);
        }
        symbols[kept++] = made;
        i += 2;
      } else {
        symbols[kept++] = symbols[i++];
      }
    }
    word.length = kept;
  }

  const WordCounts& counts_;
  TrainedBpe out_;
  std::array<TokenId, 256> byte_ids_{};
  std::unordered_map<std::string, TokenId> ids_;
  std::vector<TokenId> symbols_;  // of all words
  std::vector<Word> words_;
  PairCounts pair_counts_;
  std::vector<Candidate> queue_;  // a heap
  std::vector<std::pair<Pair, std::uint32_t>> fresh_;
};

template <KnownPattern kPattern>
void count_pieces(std::string_view text, WordCounts& counts) {
  const FastSplit<kPattern> split;
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    const char* behind = split.next(at, end);
    counts.add({at, behind});
    at = behind;
  }
}

}  // namespace

void count_words(std::string_view text, KnownPattern pattern, WordCounts& counts) {
  switch (pattern) {
    case KnownPattern::gpt2: return count_pieces<KnownPattern::gpt2>(text, counts);
    case KnownPattern::llama3: return count_pieces<KnownPattern::llama3>(text, counts);
    case KnownPattern::qwen2: return count_pieces<KnownPattern::qwen2>(text, counts);
    case KnownPattern::none: throw InternalError("count_words: no pattern");
  }
}

TrainedBpe train_bpe(const WordCounts& counts, const BpeTrainOptions& options,
                     const std::function<void(std::int64_t)>& progress) {
  return Trainer(counts, options).run(progress);
}

}  // namespace trireme::data
