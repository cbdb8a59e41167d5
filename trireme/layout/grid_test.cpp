#include "trireme/layout/grid.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "trireme/testing/layout_helpers.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using Groups = std::vector<std::vector<int>>;

TEST(Grid, MegatronsGroupsForWorld16Tp2Pp4) {
  const int world = 16, tp = 2, pp = 4, dp = world / (tp * pp);
  EXPECT_EQ(dp, 2);
  const Grid grid = Grid::dense({.pp = pp, .dp = dp, .tp = tp});
  EXPECT_EQ(grid.size(), 16);
  EXPECT_EQ(grid.groups(Axis::dp), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(grid.groups(Axis::tp), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(grid.groups(Axis::pp), (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(grid.groups({Axis::dp, Axis::tp}).size(), 4U);  // stage i owns ranks [4i, 4i + 4)
  for (int rank = 0; rank < world; ++rank) EXPECT_EQ(grid.coord(rank, Axis::pp), rank / 4);
  EXPECT_EQ(grid.degree({Axis::tp, Axis::pp}), 8);  // ranks per model replica
}

TEST(Grid, PeersDifferOnlyAlongTheAxesAsked) {
  const Grid grid({{Axis::pp, 2}, {Axis::dp, 2}, {Axis::cp, 1}, {Axis::tp, 2}});
  EXPECT_EQ(grid.str(), "pp=2 dp=2 cp=1 tp=2");
  EXPECT_EQ(grid.peers(5, {Axis::tp}), (std::vector{4, 5}));
  EXPECT_EQ(grid.peers(5, {Axis::dp, Axis::cp}), (std::vector{5, 7}));
  EXPECT_EQ(grid.peers(5, Axis::pp), (std::vector{1, 5}));
  EXPECT_EQ(grid.peers(5, Axis::ep), (std::vector{5}));
  EXPECT_EQ(grid.peers(5, {}), (std::vector{5}));
}

TEST(Grid, TheOrderIsInnermostFirst) {
  const Grid grid = Grid::dense({.pp = 2, .dp = 2, .cp = 1, .tp = 2}, "tp-pp-dp");
  EXPECT_EQ(grid.peers(0, Axis::tp), (std::vector{0, 1}));
  EXPECT_EQ(grid.peers(0, Axis::pp), (std::vector{0, 2}));
  EXPECT_EQ(grid.peers(0, Axis::dp), (std::vector{0, 4}));
  EXPECT_EQ(grid.world_rank_matrix()(1, 0, 0, 1), 3);
  EXPECT_EQ(grid.world_rank_matrix().shape(), (std::array{2, 2, 1, 2}));
}

TEST(Grid, AWrongOrderIsNamedWithTheRuleAndTheFix) {
  const auto refused = [](const char* order, const char* message) {
    EXPECT_THAT(message_of<ConfigError>([&] { Grid::dense({.pp = 2, .dp = 2, .cp = 1, .tp = 2}, order); }),
                HasSubstr(message));
  };
  refused("tp-xx-dp-pp", "parallelism.order = \"tp-xx-dp-pp\": \"xx\" is not an axis\n  fix: name each of tp, cp, dp");
  refused("tp-ep-dp-pp", "\"ep\" is not an axis");
  refused("tp-tp-dp-pp", "\"tp\" is named twice");
  refused("tp-cp-dp-", "\"\" is not an axis");
  refused("", "\"\" is not an axis");
  refused("tp-cp-dp", "leaves out pp = 2; an axis left out must have degree 1\n  fix: add pp");
}

TEST(Grid, WrongDegreesAndRanksAreNamed) {
  EXPECT_THAT(message_of<ConfigError>([] { Grid::dense({.dp = 0}); }),
              HasSubstr("parallelism.dp = 0: must be at least 1"));
  EXPECT_THAT(message_of<ConfigError>([] { Grid::dense({.tp = -2}); }),
              HasSubstr("parallelism.tp = -2: must be at least 1"));
  EXPECT_THAT(message_of<ConfigError>([] { Grid({{Axis::tp, 2}, {Axis::tp, 2}}); }), HasSubstr("tp is named twice"));
  EXPECT_THAT(message_of<ConfigError>([] { Grid::dense({.pp = 1 << 30, .dp = 1 << 30, .cp = 1 << 30, .tp = 16}); }),
              HasSubstr("more than 16777216 ranks"));
  EXPECT_THAT(message_of<ConfigError>([] { Grid({{Axis::dp, 2}}, {0, 0}); }), HasSubstr("rank 0 is twice"));
  EXPECT_THAT(message_of<ConfigError>([] { Grid({{Axis::dp, 2}}, {0, 2}); }),
              HasSubstr("rank 2 in the table of a grid of 2 ranks"));
  EXPECT_THAT(message_of<ConfigError>([] { Grid({{Axis::dp, 2}}, {0}); }), HasSubstr("the table has 1 ranks"));
  const Grid grid = Grid::dense({.dp = 4});
  EXPECT_THAT(message_of<ConfigError>([&] { grid.coord(4, Axis::dp); }),
              HasSubstr("rank 4: the grid pp=1 dp=4 cp=1 tp=1 has ranks 0 to 3"));
  EXPECT_THAT(message_of<ConfigError>([&] { grid.peers(-1, Axis::dp); }), HasSubstr("rank -1"));
  EXPECT_THAT(message_of<ConfigError>([&] { grid.rank_at({.dp = 4}); }), HasSubstr("dp coordinate 4"));
  EXPECT_THAT(message_of<ConfigError>([&] { grid.rank_at({{Axis::ep, 1}}); }), HasSubstr("ep coordinate 1"));
  EXPECT_THAT(message_of<ConfigError>([&] { grid.world_rank_matrix()(0, 4, 0, 0); }),
              HasSubstr("the shape is 1 x 4 x 1 x 1"));
}

TEST(Grid, AHundredThousandRanks) {
  const Grid grid = Grid::dense({.pp = 10, .dp = 625, .cp = 2, .tp = 8});
  EXPECT_EQ(grid.groups(Axis::tp).size(), 12'500U);
  EXPECT_EQ(grid.groups({Axis::dp, Axis::cp}).size(), 80U);
  EXPECT_EQ(grid.groups({}).size(), 100'000U);
  EXPECT_EQ(expert_view(grid, 50, 1).groups(Axis::ep).size(), 2'000U);
  EXPECT_EQ(grid.world_rank_matrix()(9, 624, 1, 7), 99'999);
}

TEST(ExpertView, EpTakesTheInnermostOfDpAndCp) {
  const Grid dense = Grid::dense({.dp = 4, .tp = 2});
  const Grid experts = expert_view(dense, 2);
  EXPECT_EQ(experts.str(), "pp=1 edp=2 ep=2 tp=2");
  EXPECT_EQ(experts.groups(Axis::ep), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(experts.groups(Axis::edp), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(experts.groups(Axis::tp), dense.groups(Axis::tp));
}

TEST(ExpertView, EpTakesTpTooWhenExpertsAreNotCutByIt) {
  const Grid experts = expert_view(Grid::dense({.dp = 4, .tp = 2}), 4, 1);
  EXPECT_EQ(experts.str(), "pp=1 edp=2 ep=4 tp=1");
  EXPECT_EQ(experts.peers(5, Axis::ep), (std::vector{4, 5, 6, 7}));
  EXPECT_EQ(experts.peers(5, Axis::edp), (std::vector{1, 5}));
}

TEST(ExpertView, FollowsTheDenseOrder) {
  // dp is innermost here: ranks 0..3 are tp = 0, ranks 4..7 are tp = 1.
  const Grid experts = expert_view(Grid::dense({.dp = 4, .tp = 2}, "dp-tp"), 2);
  EXPECT_EQ(experts.groups(Axis::ep), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(experts.groups(Axis::tp), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  // The innermost of dp x cp is cp by default, dp here.
  EXPECT_EQ(expert_view(Grid::dense({.dp = 2, .cp = 2}, "tp-dp-cp-pp"), 2).groups(Axis::ep), (Groups{{0, 1}, {2, 3}}));
}

TEST(ExpertView, WrongDegreesAreNamed) {
  const Grid dense = Grid::dense({.dp = 2, .cp = 3, .tp = 4});
  const auto refused = [&](int ep, int expert_tp, const char* message) {
    EXPECT_THAT(message_of<ConfigError>([&] { expert_view(dense, ep, expert_tp); }), HasSubstr(message));
  };
  refused(0, 0, "parallelism.ep = 0: must be at least 1");
  refused(2, -1, "parallelism.expert_tp = -1: must be at least 1");
  refused(2, 3, "parallelism.expert_tp = 3: must divide tp = 4");
  refused(4, 0, "parallelism.ep = 4: must divide dp x cp x tp / expert_tp = 6 (dp = 2, cp = 3, tp = 4, expert_tp = 4)");
  EXPECT_THROW(expert_view(expert_view(dense, 2), 2), ConfigError);
}

struct AnyDense {
  Degrees degrees;
  std::vector<std::string> order;  // innermost first
  Grid grid = Grid::dense({});
};

AnyDense any_dense() {
  const auto degree = [] { return pick(1, 4); };
  AnyDense any;
  any.degrees = {.pp = degree(), .dp = degree(), .cp = degree(), .tp = degree()};
  any.order = {"tp", "cp", "dp", "pp"};
  for (int i = 3; i > 0; --i) std::swap(any.order[i], any.order[pick(0, i)]);
  any.grid = Grid::dense(any.degrees, any.order[0] + "-" + any.order[1] + "-" + any.order[2] + "-" + any.order[3]);
  return any;
}

AxisSet any_axes() {
  AxisSet axes;
  for (Axis axis : kAxes)
    if (toss()) axes = axes | axis;
  return axes;
}

RC_GTEST_PROP(GridProperty, MatrixFollowsTheOrderAndGetLocalRanksIsItsInverse, ()) {
  const AnyDense any = any_dense();
  const WorldRankMatrix matrix = any.grid.world_rank_matrix();
  RC_ASSERT(static_cast<int>(matrix.flat().size()) == any.grid.size());
  for (int rank = 0; rank < any.grid.size(); ++rank) {
    const LocalRanks at = any.grid.get_local_ranks(rank);
    RC_ASSERT(matrix(at.pp, at.dp, at.cp, at.tp) == rank);
    RC_ASSERT(any.grid.rank_at(at) == rank);
    int expected = 0, stride = 1;
    for (const std::string& axis : any.order) {
      const auto [value, degree] = axis == "tp"   ? std::pair(at.tp, any.degrees.tp)
                                   : axis == "cp" ? std::pair(at.cp, any.degrees.cp)
                                   : axis == "dp" ? std::pair(at.dp, any.degrees.dp)
                                                  : std::pair(at.pp, any.degrees.pp);
      expected += value * stride;
      stride *= degree;
    }
    RC_ASSERT(rank == expected);
  }
}

RC_GTEST_PROP(GridProperty, GroupsPartitionTheRanksAndDifferOnlyAlongTheirAxes, ()) {
  const Grid grid = any_dense().grid;
  const AxisSet axes = any_axes();
  std::vector<int> all;
  int previous_first = -1;
  for (const std::vector<int>& group : grid.groups(axes)) {
    RC_ASSERT(static_cast<int>(group.size()) == grid.degree(axes));
    RC_ASSERT(std::ranges::is_sorted(group) && group.front() > previous_first);
    previous_first = group.front();
    for (int rank : group) {
      RC_ASSERT(grid.peers(rank, axes) == group);
      for (Axis axis : kAxes) RC_ASSERT(axes.contains(axis) || grid.coord(rank, axis) == grid.coord(group[0], axis));
    }
    all.insert(all.end(), group.begin(), group.end());
  }
  std::ranges::sort(all);
  std::vector<int> expected(grid.size());
  std::iota(expected.begin(), expected.end(), 0);
  RC_ASSERT(all == expected);
}

RC_GTEST_PROP(GridProperty, AGroupOfMoreAxesIsTheUnionOfItsMembersSmallerGroups, ()) {
  const Grid grid = any_dense().grid;
  const AxisSet a = any_axes(), b = any_axes();
  const int rank = pick(0, grid.size() - 1);
  std::set<int> by_steps;
  for (int first : grid.peers(rank, a))
    for (int second : grid.peers(first, b)) by_steps.insert(second);
  const std::vector<int> at_once = grid.peers(rank, a | b);
  RC_ASSERT(std::set<int>(at_once.begin(), at_once.end()) == by_steps);
}

RC_GTEST_PROP(GridProperty, ExpertsAreAViewOfTheSameRanks, ()) {
  const AnyDense any = any_dense();
  const auto divisor_of = [](int n) {
    int divisor = pick(1, n);
    while (n % divisor != 0) --divisor;
    return divisor;
  };
  const int expert_tp = divisor_of(any.degrees.tp);
  const int places = any.grid.size() / any.degrees.pp / expert_tp, ep = divisor_of(places);
  const Grid experts = expert_view(any.grid, ep, expert_tp);

  RC_ASSERT(experts.size() == any.grid.size());
  RC_ASSERT(experts.degree(Axis::edp) * ep == places);
  std::set<int> ranks;
  for (const std::vector<int>& group : experts.groups({Axis::edp, Axis::ep, Axis::tp}))
    for (int rank : group) {
      RC_ASSERT(any.grid.coord(rank, Axis::pp) == any.grid.coord(group[0], Axis::pp));  // inside a stage
      RC_ASSERT(experts.coord(rank, Axis::pp) == any.grid.coord(rank, Axis::pp));
      ranks.insert(rank);
    }
  RC_ASSERT(static_cast<int>(ranks.size()) == experts.size());
  if (expert_tp == any.degrees.tp) RC_ASSERT(experts.groups(Axis::tp) == any.grid.groups(Axis::tp));
  // Innermost first: an ep group that fits into the tp group stays within it.
  if (ep * expert_tp == any.degrees.tp) RC_ASSERT(experts.groups({Axis::ep, Axis::tp}) == any.grid.groups(Axis::tp));
}

}  // namespace
}  // namespace trireme
