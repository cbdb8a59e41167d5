#include "trireme/layout/split.hpp"

#include <algorithm>
#include <functional>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/layout_helpers.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using Sizes = std::vector<std::int64_t>;

Sizes sizes(const std::vector<Range>& ranges) {
  Sizes result;
  for (const Range& range : ranges) result.push_back(range.size());
  return result;
}

TEST(LayersOverStages, EqualLayersAreSplitEvenlyAndTheRemainderGoesToTheEnd) {
  EXPECT_EQ(sizes(layers_over_stages(std::vector<double>(8, 0.1), 4)), (Sizes{2, 2, 2, 2}));
  EXPECT_EQ(sizes(layers_over_stages(std::vector<double>(10, 0.1), 4)), (Sizes{2, 2, 3, 3}));
  EXPECT_EQ(sizes(layers_over_stages(std::vector<double>(5, 0), 1)), (Sizes{5}));
}

TEST(LayersOverStages, EmbeddingAndHeadCountAsWork) {
  EXPECT_EQ(sizes(layers_over_stages(std::vector<double>(10, 1), 4, 0, 2)), (Sizes{3, 3, 3, 1}));
  EXPECT_EQ(sizes(layers_over_stages(std::vector<double>(10, 1), 4, 1, 1)), (Sizes{2, 3, 3, 2}));
  EXPECT_EQ(sizes(layers_over_stages(std::vector<double>(6, 1), 2, 0, 100)), (Sizes{5, 1}));
}

TEST(LayersOverStages, TheLargestCostComesBeforeEvenness) {
  // 1 5 5 has the smallest maximum; 6 2 3 has the smaller sum of squares.
  EXPECT_EQ(sizes(layers_over_stages({1, 5, 2, 3}, 3)), (Sizes{1, 1, 2}));
}

TEST(LayersOverStages, WrongNumbersAreNamed) {
  EXPECT_THAT(message_of<ConfigError>([] { layers_over_stages({1, 1, 1}, 4); }),
              HasSubstr("3 layers cannot fill 4 pipeline chunks"));
  EXPECT_THROW(layers_over_stages({1}, 0), ConfigError);
  EXPECT_THROW(layers_over_stages({1, -1}, 1), ConfigError);
  EXPECT_THROW(layers_over_stages({1, 0.0 / 0.0}, 1), ConfigError);
  EXPECT_THROW(layers_over_stages({1}, 1, 1e300), ConfigError);
}

RC_GTEST_PROP(SplitProperty, LayersAreSplitAsByTryingAllSplits, ()) {
  std::vector<int> costs(pick(1, 9));
  for (int& cost : costs) cost = pick(0, 5);
  const int num_layers = static_cast<int>(costs.size()), num_chunks = pick(1, num_layers);
  const int first_cost = pick(0, 7), last_cost = pick(0, 7);

  using Score = std::tuple<int, int, std::vector<std::int64_t>>;  // largest cost, sum of squares, layers by chunk
  const auto score = [&](const std::vector<std::int64_t>& layers) {
    int largest = 0, squares = 0;
    std::size_t layer = 0;
    for (std::size_t chunk = 0; chunk < layers.size(); ++chunk) {
      int cost = (chunk == 0 ? first_cost : 0) + (chunk + 1 == layers.size() ? last_cost : 0);
      for (std::int64_t i = 0; i < layers[chunk]; ++i) cost += costs[layer++];
      largest = std::max(largest, cost);
      squares += cost * cost;
    }
    return Score{largest, squares, layers};
  };
  std::vector<Score> all;
  std::vector<std::int64_t> layers;
  const std::function<void(int)> try_all = [&](int left) {
    if (static_cast<int>(layers.size()) == num_chunks) {
      if (left == 0) all.push_back(score(layers));
      return;
    }
    for (int take = 1; take <= left; ++take) {
      layers.push_back(take);
      try_all(left - take);
      layers.pop_back();
    }
  };
  try_all(num_layers);

  const std::vector<Range> split = layers_over_stages({costs.begin(), costs.end()}, num_chunks, first_cost, last_cost);
  RC_ASSERT(split.front().begin == 0 && split.back().end == num_layers);
  for (std::size_t i = 1; i < split.size(); ++i) RC_ASSERT(split[i].begin == split[i - 1].end);
  RC_ASSERT(score(sizes(split)) == *std::ranges::min_element(all));
}

TEST(TokensOverCp, ZigZagBalancesCausalWork) {
  const std::vector<std::int64_t> contiguous{36, 100, 164, 228};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(causal_work(tokens_over_cp(32, 4, rank, CpSplit::contiguous)), contiguous[rank]);
    EXPECT_EQ(causal_work(tokens_over_cp(32, 4, rank, CpSplit::zigzag)), 132);
  }
  EXPECT_EQ(tokens_over_cp(32, 4, 1), (std::vector<Range>{Range{4, 8}, Range{24, 28}}));
  EXPECT_EQ(tokens_over_cp(7, 1, 0), (std::vector<Range>{Range{0, 7}}));
}

TEST(TokensOverCp, WrongNumbersAreNamedWithTheFix) {
  EXPECT_THAT(message_of<ConfigError>([] { tokens_over_cp(30, 4, 0); }),
              HasSubstr("seq_len = 30 is not divisible by 2 x cp = 8\n  fix: a multiple of it, such as 32"));
  EXPECT_THAT(message_of<ConfigError>([] { tokens_over_cp(30, 4, 0, CpSplit::contiguous); }),
              HasSubstr("seq_len = 30 is not divisible by cp = 4"));
  EXPECT_THAT(message_of<ConfigError>([] { tokens_over_cp(32, 0, 0); }), HasSubstr("parallelism.cp = 0"));
  EXPECT_THAT(message_of<ConfigError>([] { tokens_over_cp(32, 4, 4); }),
              HasSubstr("cp rank 4: cp = 4 has ranks 0 to 3"));
  EXPECT_THAT(message_of<ConfigError>([] { tokens_over_cp(-8, 4, 0); }), HasSubstr("seq_len = -8"));
}

RC_GTEST_PROP(SplitProperty, EveryTokenIsOnOneCpRankAndZigZagWorkIsEqual, ()) {
  const int cp = pick(1, 8);
  const std::int64_t seq_len = std::int64_t{2} * cp * pick(0, 8);
  const CpSplit split = toss() ? CpSplit::zigzag : CpSplit::contiguous;
  std::vector<int> holders(seq_len);
  for (int rank = 0; rank < cp; ++rank) {
    const std::vector<Range> mine = tokens_over_cp(seq_len, cp, rank, split);
    std::int64_t work = 0, previous_end = 0;
    for (const Range& range : mine) {
      RC_ASSERT(range.begin >= previous_end);
      previous_end = range.end;
      for (std::int64_t query = range.begin; query < range.end; ++query) {
        ++holders[query];
        work += query + 1;  // keys 0..query
      }
    }
    RC_ASSERT(causal_work(mine) == work);
    if (split == CpSplit::zigzag) RC_ASSERT(work == seq_len * (seq_len + 1) / 2 / cp);
  }
  RC_ASSERT(std::ranges::count(holders, 1) == seq_len);
}

}  // namespace
}  // namespace trireme
