#include "trireme/data/tokenizer/bpe.hpp"

#include <map>

#include <gtest/gtest.h>

#include "trireme/base/philox.hpp"

namespace trireme::data {
namespace {

using Table = std::map<std::pair<TokenId, TokenId>, std::pair<std::uint32_t, TokenId>>;

/// Reference by definition: merge the pair of the lowest rank, leftmost first; repeat until there is none.
std::vector<TokenId> naive(const Table& table, std::vector<TokenId> symbols) {
  for (;;) {
    std::size_t best = symbols.size();
    std::uint32_t rank = MergeTable::kNone;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = table.find({symbols[i], symbols[i + 1]});
      if (found != table.end() && found->second.first < rank) {
        rank = found->second.first;
        best = i;
      }
    }
    if (rank == MergeTable::kNone) return symbols;
    symbols[best] = table.at({symbols[best], symbols[best + 1]}).second;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(MergeTable, AppliesAsDefinedToShortAndLongWords) {
  const RandomStream dice(3, "bpe test");
  std::uint64_t at = 0;
  for (int round = 0; round < 60; ++round) {
    const TokenId letters = 2 + static_cast<TokenId>(dice.below(at++, 4));
    std::vector<Merge> merges;
    std::vector<std::uint32_t> ranks;
    Table table;
    TokenId tokens = letters;
    for (std::uint32_t rank = 0; rank < 30; ++rank) {
      const Merge merge{static_cast<TokenId>(dice.below(at++, tokens)), static_cast<TokenId>(dice.below(at++, tokens)),
                        tokens};
      if (!table.emplace(std::pair(merge.left, merge.right), std::pair(rank, merge.made)).second) continue;
      merges.push_back(merge);
      ranks.push_back(rank);
      ++tokens;
    }
    const MergeTable made(merges, ranks);
    EXPECT_EQ(made.size(), merges.size());
    for (const std::size_t length : {0, 1, 2, 3, 17, 47, 48, 49, 50, 200, 1000}) {
      std::vector<TokenId> symbols;
      for (std::size_t i = 0; i < length; ++i) symbols.push_back(static_cast<TokenId>(dice.below(at++, letters)));
      const auto expected = naive(table, symbols);
      made.apply(symbols);
      ASSERT_EQ(symbols, expected) << "round " << round << ", length " << length;
    }
  }
}

TEST(MergeTable, OfAPairGivenTwiceTheLastCounts) {
  const std::vector<Merge> merges{{0, 1, 2}, {1, 0, 3}, {0, 1, 4}};
  const std::vector<std::uint32_t> ranks{0, 1, 2};
  const MergeTable table(merges, ranks);
  EXPECT_EQ(table.find(0, 1).made, 4u);
  EXPECT_EQ(table.find(0, 1).rank, 2u);
  EXPECT_EQ(table.find(1, 1).rank, MergeTable::kNone);
  EXPECT_EQ(MergeTable().find(1, 1).rank, MergeTable::kNone);
}

}  // namespace
}  // namespace trireme::data
