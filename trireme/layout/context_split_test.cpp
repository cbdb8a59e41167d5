#include "trireme/layout/context_split.hpp"

#include <algorithm>
#include <array>
#include <set>

#include <gmock/gmock.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::vector<std::int64_t> places(const std::vector<Range>& ranges) {
  std::vector<std::int64_t> out;
  for (const Range& range : ranges)
    for (std::int64_t i = range.begin; i < range.end; ++i) out.push_back(i);
  return out;
}

std::vector<ContextSplit> all_splits() {
  std::vector<ContextSplit> out;
  for (const int cp : {1, 2, 3, 4, 6, 8})
    for (const int kv_heads : {1, 2, 4})
      for (const auto* name : {"ring", "ring-contiguous", "all-gather", "ulysses", "ulysses-ring"})
        out.push_back(context_split(parse_context_method(name), cp, kv_heads));
  return out;
}

TEST(ContextSplit, EveryTokenIsOnOneRank) {
  for (const ContextSplit& split : all_splits()) {
    const std::int64_t length = 3 * split.divisor();
    std::multiset<std::int64_t> seen;
    for (int rank = 0; rank < split.cp; ++rank) {
      const std::vector<std::int64_t> mine = places(split.tokens(length, rank));
      EXPECT_EQ(static_cast<std::int64_t>(mine.size()), length / split.cp);
      EXPECT_TRUE(std::ranges::is_sorted(mine)) << "a causal mask over the tokens of a rank needs that";
      seen.insert(mine.begin(), mine.end());
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(length));
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), seen.size());
  }
}

TEST(ContextSplit, RanksOfAGroupHaveItsTokensInOrder) {
  for (const ContextSplit& split : all_splits()) {
    const std::int64_t length = 2 * split.divisor();
    for (int group = 0; group < split.ring(); ++group) {
      std::vector<std::int64_t> joined;
      for (int u = 0; u < split.ulysses; ++u)
        for (const std::int64_t place : places(split.tokens(length, group * split.ulysses + u)))
          joined.push_back(place);
      EXPECT_EQ(joined, places(split.tokens_of_group(length, group)));
    }
  }
}

/// The parts contain every causal pair once, and no other pair.
TEST(ContextSplit, PartsAreTheCausalPairs) {
  for (const ContextSplit& split : all_splits()) {
    const std::int64_t length = 2 * split.divisor();
    std::set<std::pair<std::int64_t, std::int64_t>> pairs;
    std::set<std::int64_t> work;
    for (int mine = 0; mine < split.ring(); ++mine) {
      const std::size_t before = pairs.size();
      const std::vector<std::int64_t> queries = places(split.tokens_of_group(length, mine));
      for (int other = 0; other < split.ring(); ++other) {
        const std::vector<std::int64_t> keys = places(split.tokens_of_group(length, other));
        const auto part = attention_part(split.order(), length / split.ring(), mine, other);
        if (!part) continue;
        for (std::int64_t q = part->queries.begin; q < part->queries.end; ++q)
          for (std::int64_t k = part->keys.begin; k < part->keys.end && (!part->causal || k <= q); ++k)
            EXPECT_TRUE(pairs.emplace(queries[static_cast<std::size_t>(q)], keys[static_cast<std::size_t>(k)]).second);
      }
      work.insert(static_cast<std::int64_t>(pairs.size() - before));
    }
    EXPECT_EQ(static_cast<std::int64_t>(pairs.size()), length * (length + 1) / 2);
    for (const auto& [query, key] : pairs) EXPECT_LE(key, query);
    if (split.order() == CpSplit::zigzag) {
      EXPECT_EQ(work.size(), 1u) << "every rank has the same work";
    }
  }
}

TEST(ContextSplit, TheGoldenCase) {
  const ContextSplit ring = context_split(ContextMethod::ring, 4, 1);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(causal_work(ring.tokens(32, rank)), 132);
  EXPECT_EQ(ring.tokens(32, 1), (std::vector<Range>{{4, 8}, {24, 28}}));
  const ContextSplit both = context_split(ContextMethod::ulysses_ring, 4, 2);
  EXPECT_EQ(both.ulysses, 2);
  EXPECT_EQ(both.tokens(32, 0), (std::vector<Range>{{0, 8}}));
  EXPECT_EQ(both.tokens(32, 1), (std::vector<Range>{{24, 32}}));
  EXPECT_EQ(context_split(ContextMethod::ulysses, 4, 1).tokens(32, 2), (std::vector<Range>{{16, 24}}));
}

TEST(ContextSplit, WhatDoesNotDivide) {
  EXPECT_EQ(context_split(ContextMethod::ring, 4, 1).divisor(), 8);
  EXPECT_EQ(context_split(ContextMethod::ring_contiguous, 4, 1).divisor(), 4);
  EXPECT_EQ(context_split(ContextMethod::ulysses, 4, 4).divisor(), 4);
  EXPECT_EQ(context_split(ContextMethod::ulysses_ring, 4, 2).divisor(), 4);
  EXPECT_EQ(context_split(ContextMethod::ulysses_ring, 6, 3).divisor(), 12);
  EXPECT_THROW(context_split(ContextMethod::ring, 4, 1).tokens(12, 0), ConfigError);
  EXPECT_THROW(context_split(ContextMethod::ulysses, 4, 4).tokens(6, 0), ConfigError);
  EXPECT_THROW(context_split(ContextMethod::ring, 4, 1).tokens(16, 4), ConfigError);
  EXPECT_THROW(parse_context_method("rings"), ConfigError);
}

/// Every pair that the masks allow is in one rectangle, and no other pair; the queries of a list differ.
TEST(ContextSplit, RectanglesAreThePairsOfDocumentsAndWindows) {
  constexpr std::int64_t kLength = 48;
  const std::vector<std::vector<std::int64_t>> begins{{0}, {0, 1, 7, 12, 40}, {0, 23, 24, 25}, {0, 13}};
  for (const CpSplit order : {CpSplit::zigzag, CpSplit::contiguous})
    for (const int groups : {1, 2, 3, 4})
      for (const std::int64_t window : {0, 1, 2, 5, 13, 30, 48, 100})
        for (int mine = 0; mine < groups; ++mine)
          for (int other = 0; other < groups; ++other) {
            const RingTokens tokens{order, kLength, groups, window, begins};
            const auto q = places(tokens_over_cp(kLength, groups, mine, order)),
                       k = places(tokens_over_cp(kLength, groups, other, order));
            std::multiset<std::array<std::int64_t, 3>> found;
            for (const auto& list : attention_rectangles(tokens, mine, other)) {
              std::set<std::pair<std::int64_t, std::int64_t>> queries;
              for (const AttentionRectangle& r : list) {
                EXPECT_EQ(r.left, list.front().left);
                EXPECT_EQ(r.causal, list.front().causal);
                EXPECT_TRUE(r.queries.size() > 0 && r.keys.size() > 0);
                for (std::int64_t i = 0; i < r.queries.size(); ++i) {
                  EXPECT_TRUE(queries.emplace(r.sample, r.queries.begin + i).second);
                  const std::int64_t diagonal = i + r.keys.size() - r.queries.size();
                  for (std::int64_t j = 0; j < r.keys.size(); ++j)
                    if ((!r.causal || j <= diagonal) && (r.left < 0 || j >= diagonal - r.left))
                      found.insert({r.sample, q[static_cast<std::size_t>(r.queries.begin + i)],
                                    k[static_cast<std::size_t>(r.keys.begin + j)]});
                }
              }
            }
            std::multiset<std::array<std::int64_t, 3>> wanted;
            for (std::size_t sample = 0; sample < begins.size(); ++sample) {
              const auto document = [&](std::int64_t place) {
                return std::ranges::upper_bound(begins[sample], place) - begins[sample].begin();
              };
              for (const std::int64_t a : q)
                for (const std::int64_t b : k)
                  if (b <= a && (window == 0 || a - b < window) && document(a) == document(b))
                    wanted.insert({static_cast<std::int64_t>(sample), a, b});
            }
            ASSERT_EQ(found, wanted) << groups << " groups, " << mine << " and " << other << ", window " << window;
          }
}

}  // namespace
}  // namespace trireme
