#include "trireme/data/tokenizer/bpe.hpp"

#include <algorithm>
#include <array>
#include <queue>

#include "trireme/base/error.hpp"

namespace trireme::data {
namespace {

// Up to this length, rescanning all pairs is faster than a priority queue.
constexpr std::size_t kShort = 48;

}  // namespace

MergeTable::MergeTable(std::span<const Merge> merges, std::span<const std::uint32_t> ranks) : pairs_(merges.size()) {
  for (std::size_t i = 0; i < merges.size(); ++i) {
    require<InternalError>((merges[i].left & merges[i].right) != kNone, "MergeTable: token 2^32 - 1");
    pairs_.set(merges[i].left, merges[i].right, {ranks[i], merges[i].made});
  }
}

void MergeTable::apply(std::vector<TokenId>& symbols) const {
  if (symbols.size() < 2) return;
  symbols.size() <= kShort ? apply_short(symbols) : apply_long(symbols);
}

void MergeTable::apply_short(std::vector<TokenId>& symbols) const {
  std::array<Found, kShort> pairs;  // pairs[i]: symbols i and i + 1
  std::size_t n = symbols.size();
  for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = find(symbols[i], symbols[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == kNone) break;
    symbols[best] = pairs[best].made;
    std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 2, symbols.begin() + static_cast<std::ptrdiff_t>(n),
              symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    std::copy(pairs.begin() + static_cast<std::ptrdiff_t>(best) + 1, pairs.begin() + static_cast<std::ptrdiff_t>(n) - 1,
              pairs.begin() + static_cast<std::ptrdiff_t>(best));
    --n;
    if (best > 0) pairs[best - 1] = find(symbols[best - 1], symbols[best]);
    if (best + 1 < n) pairs[best] = find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

// A whole text may be one word (Llama 2): n log n. Symbols form a linked list; the queue may hold stale pairs.
void MergeTable::apply_long(std::vector<TokenId>& symbols) const {
  const std::size_t n = symbols.size();
  require<DataError>(n < kNone, "a word of ", n, " symbols");
  std::vector<std::uint32_t> next(n), previous(n);
  constexpr std::uint32_t kEnd = kNone;
  for (std::uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1 < n ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
  }
  struct Candidate {
    std::uint32_t rank, at;
    TokenId left, right, made;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](std::uint32_t at) {
    if (at == kEnd || next[at] == kEnd) return;
    const Found found = find(symbols[at], symbols[next[at]]);
    if (found.rank != kNone) queue.push({found.rank, at, symbols[at], symbols[next[at]], found.made});
  };
  for (std::uint32_t i = 0; i < n; ++i) offer(i);
  std::vector<bool> gone(n, false);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    if (gone[top.at] || symbols[top.at] != top.left || next[top.at] == kEnd || symbols[next[top.at]] != top.right)
      continue;
    const std::uint32_t right = next[top.at];
    symbols[top.at] = top.made;
    gone[right] = true;
    next[top.at] = next[right];
    if (next[right] != kEnd) previous[next[right]] = top.at;
    offer(previous[top.at]);
    offer(top.at);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < n; ++i)
    if (!gone[i]) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

}  // namespace trireme::data
