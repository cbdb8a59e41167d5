#include "trireme/layout/placement.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/layout/overlap.hpp"
#include "trireme/testing/layout_helpers.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;

std::string text_of(const Placement& placement, const Shape& shape, const Grid& grid, int rank) {
  return str(sharded_info(placement, shape, grid, rank).local_global_slices_pairs);
}

TEST(Placement, TheSeedsExample) {
  const Grid grid({{Axis::tp, 2}, {Axis::dp, 3}});  // ranks 0 and 3 are peers along tp
  const Placement weight{.cuts = {{Axis::tp, 1}}};
  const ShardedInfo rank3{{0, 3}, parse_slices_pairs("0,8,None|0,32,None#0,8,None|32,64,None"), {8, 64}};
  EXPECT_EQ(sharded_info(weight, {8, 64}, grid, 3), rank3);
  EXPECT_EQ(text_of(weight, {8, 64}, grid, 0), "0,8,None|0,32,None#0,8,None|0,32,None");
  EXPECT_EQ(local_shape(weight, {8, 64}, grid), (Shape{8, 32}));
  EXPECT_EQ(pieces(weight, {8, 64}, grid, 3).at(0).replicas, 3);
}

TEST(Placement, GradientsAreSummedOverCpEvenWhenDpIsOne) {
  const Grid grid({{Axis::dp, 1}, {Axis::cp, 2}, {Axis::tp, 2}});
  const Placement weight{.cuts = {{Axis::tp, 0}}};
  const AxisSet axes = grad_sum_axes(weight, {Axis::dp, Axis::cp});
  EXPECT_EQ(axes, (AxisSet{Axis::dp, Axis::cp}));
  EXPECT_EQ(grid.peers(0, axes), (std::vector{0, 2}));
  EXPECT_EQ(grad_sum_axes({.cuts = {{Axis::tp, 0}, {Axis::dp, 1}}}, {Axis::dp, Axis::cp}), AxisSet(Axis::cp));
}

TEST(Placement, FusedQkvKeepsHeadsWhole) {
  const Placement qkv{.cuts = {fused_qkv(Axis::tp, 0, 4, 2, 8)}};  // q 32, k 16, v 16 rows
  const Grid grid = Grid::dense({.tp = 2});
  EXPECT_EQ(local_shape(qkv, {64, 5}, grid), (Shape{32, 5}));
  EXPECT_EQ(text_of(qkv, {64, 5}, grid, 1),
            "0,16,None|0,5,None#16,32,None|0,5,None;16,24,None|0,5,None#40,48,None|0,5,None;"
            "24,32,None|0,5,None#56,64,None|0,5,None");
}

TEST(Placement, KvHeadsAreRepeatedWhereTpIsLarger) {
  const Placement qkv{.cuts = {fused_qkv(Axis::tp, 0, 4, 2, 8)}};
  const Grid grid = Grid::dense({.dp = 2, .tp = 4});
  EXPECT_EQ(local_shape(qkv, {64}, grid), (Shape{24}));
  EXPECT_EQ(text_of(qkv, {64}, grid, 3), "0,8,None#24,32,None;8,16,None#40,48,None;16,24,None#56,64,None");
  const std::vector<Piece> mine = pieces(qkv, {64}, grid, 3);
  EXPECT_EQ(mine[0].replicas, 2);
  EXPECT_EQ(mine[1].replicas, 4);
  EXPECT_EQ(same_piece_peers(qkv, {64}, grid, 3, 0, Axis::tp), (std::vector{3}));
  EXPECT_EQ(same_piece_peers(qkv, {64}, grid, 3, 1, Axis::tp), (std::vector{2, 3}));
  EXPECT_EQ(same_piece_peers(qkv, {64}, grid, 3, 2, {Axis::dp, Axis::tp}), (std::vector{2, 3, 6, 7}));
  EXPECT_THROW(same_piece_peers(qkv, {64}, grid, 3, 3, Axis::tp), InternalError);
}

TEST(Placement, GateUpIsTwoChunks) {
  const Placement up{.cuts = {gate_up(Axis::tp, 0, 6)}};
  EXPECT_EQ(text_of(up, {12}, Grid::dense({.tp = 2}), 1), "0,3,None#3,6,None;3,6,None#9,12,None");
}

TEST(Placement, APaddedDimEndsShortOrEmpty) {
  const Placement vocabulary{.cuts = {{.axis = Axis::tp, .dim = 0, .padded_to = 1}}};
  const Grid grid = Grid::dense({.tp = 4});
  EXPECT_EQ(local_shape(vocabulary, {5}, grid), (Shape{2}));
  EXPECT_EQ(text_of(vocabulary, {5}, grid, 2), "0,1,None#4,5,None");
  EXPECT_EQ(text_of(vocabulary, {5}, grid, 3), "");
}

TEST(Placement, APaddedDimHasAMultipleOfRowsOnEveryRank) {
  const auto rows = [](std::int64_t entries, int tp) {
    return local_shape({.cuts = {vocabulary_rows(Axis::tp, 0)}}, {entries, 3}, Grid::dense({.tp = tp}));
  };
  EXPECT_EQ(rows(512, 1), (Shape{512, 3}));
  EXPECT_EQ(rows(512, 4), (Shape{128, 3}));
  EXPECT_EQ(rows(512, 8), (Shape{128, 3}));
  EXPECT_EQ(rows(509, 1), (Shape{512, 3}));
  EXPECT_EQ(rows(513, 4), (Shape{256, 3}));
  EXPECT_EQ(rows(1, 4), (Shape{128, 3}));
  // GPT-2's. Each rank's share is rounded up, so that they stay equal.
  EXPECT_EQ(rows(50257, 1), (Shape{50304, 3}));
  EXPECT_EQ(rows(50257, 2), (Shape{25216, 3}));
  EXPECT_EQ(rows(50257, 4), (Shape{12672, 3}));
  EXPECT_EQ(rows(50257, 8), (Shape{6400, 3}));
  EXPECT_EQ(rows(128256, 8), (Shape{16128, 3}));
}

/// Padding changes neither who holds which row nor what is in files.
TEST(Placement, PaddingIsInNoPiece) {
  const Placement vocabulary{.cuts = {vocabulary_rows(Axis::tp, 0)}}, tight = without_extra_rows(vocabulary);
  const Grid grid = Grid::dense({.tp = 4});
  EXPECT_EQ(text_of(vocabulary, {50257}, grid, 0), "0,12565,None#0,12565,None");
  EXPECT_EQ(text_of(vocabulary, {50257}, grid, 3), "0,12562,None#37695,50257,None");
  EXPECT_EQ(local_shape(tight, {50257}, grid), (Shape{12565}));
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(pieces(tight, {50257}, grid, rank), pieces(vocabulary, {50257}, grid, rank));
  const Placement whole{.cuts = {{Axis::tp, 0}}};
  EXPECT_EQ(without_extra_rows(whole), whole);
}

TEST(Placement, OfTwoAxesOnOneDimTheFirstIsTheOuter) {
  const Grid grid = Grid::dense({.dp = 2, .tp = 2});
  EXPECT_EQ(text_of({.cuts = {{Axis::tp, 0}, {Axis::dp, 0}}}, {8}, grid, 1), "0,2,None#4,6,None");  // tp = 1, dp = 0
  EXPECT_EQ(text_of({.cuts = {{Axis::dp, 0}, {Axis::tp, 0}}}, {8}, grid, 1), "0,2,None#2,4,None");
}

TEST(Placement, ErrorsNameDimSizeAxisDegreeAndRule) {
  const Grid grid = Grid::dense({.dp = 2, .tp = 3});
  const auto refused = [&](const Placement& placement, const Shape& shape, const char* message) {
    EXPECT_THAT(message_of<ConfigError>([&] { check(placement, shape, grid); }), HasSubstr(message));
  };
  refused({.cuts = {{Axis::tp, 1}}}, {6, 10}, "dim 1 of size 10, cut by tp = 3: the size must be divisible by 3");
  refused({.cuts = {{Axis::dp, 0}, {Axis::tp, 0}}}, {9}, "cut by dp x tp = 2 x 3: the size must be divisible by 6");
  refused({.cuts = {{Axis::tp, 2}}}, {6, 9},
          "tp cuts dim 2 of a tensor of shape (6, 9): it has 2 dims, counted from 0");
  refused({.cuts = {{Axis::tp, -1}}}, {6, 9}, "tp cuts dim -1");
  refused({.cuts = {{Axis::tp, 0}, {Axis::tp, 1}}}, {6, 9}, "the axis is listed twice");
  refused({.cuts = {fused_qkv(Axis::tp, 0, 6, 2, 4)}}, {40},
          "dim 0 of size 40, cut by tp = 3: a section of 8 has 2 granules: one of 3 and 2 must divide the other");
  refused({.cuts = {gate_up(Axis::tp, 0, 6)}}, {13}, "the sections add up to 12, not 13");
  refused({.cuts = {gate_up(Axis::tp, 0, 6)}}, {11}, "the sections must be positive and add up to 11");
  refused({.cuts = {{Axis::tp, 0, {{-3, 0}, {9, 0}}}}}, {6}, "the sections must be positive");
  refused({.cuts = {{Axis::tp, 0, {{6, 4}}}}}, {6}, "a section of 6 is not divisible into 4 granules");
  refused({.cuts = {{Axis::tp, 0, {{6, -3}}}}}, {6}, "into -3 granules");
  refused({.cuts = {{Axis::tp, 0, {{6, 0}}, 1}}}, {6}, "cannot be padded");
  refused({.cuts = {{Axis::tp, 0, {{6, 0}}}, {Axis::dp, 0, {{6, 0}}}}}, {6}, "sections are stated twice");
  refused({}, {-1}, "a size is negative");
}

RC_GTEST_PROP(PlacementProperty, EveryElementIsKeptByAsManyRanksAsSaid, ()) {
  const Shape shape = any_shape();
  const Grid grid = any_grid();
  const Placement placement = any_placement(shape, grid);
  std::vector<int> holders(numel(shape));
  const auto for_each_piece = [&](const auto& visit) {
    for (int rank = 0; rank < grid.size(); ++rank)
      for (const Piece& piece : pieces(placement, shape, grid, rank)) visit(piece);
  };
  for_each_piece([&](const Piece& piece) {
    for (std::int64_t index : indices(box_of(piece.slices.global_slices), shape)) ++holders[index];
  });
  RC_ASSERT(std::ranges::find(holders, 0) == holders.end());
  for_each_piece([&](const Piece& piece) {
    for (std::int64_t index : indices(box_of(piece.slices.global_slices), shape))
      RC_ASSERT(holders[index] == piece.replicas);
  });
}

RC_GTEST_PROP(PlacementProperty, LocalSlicesFillTheLocalShapeButForPadding, ()) {
  const Shape shape = any_shape();
  const Grid grid = any_grid();
  const Placement placement = any_placement(shape, grid);
  const Shape local = local_shape(placement, shape, grid);
  const bool padded = std::ranges::any_of(placement.cuts, [](const Cut& cut) { return cut.padded_to > 0; });
  const int rank = pick(0, grid.size() - 1);
  const ShardedInfo info = sharded_info(placement, shape, grid, rank);
  RC_ASSERT(validated(info, local) == info);  // inside both shapes, equal sizes, no overlap
  RC_ASSERT(parse_slices_pairs(str(info.local_global_slices_pairs)) == info.local_global_slices_pairs);
  std::int64_t filled = 0;
  for (const SlicesPair& pair : info.local_global_slices_pairs)
    filled += static_cast<std::int64_t>(indices(box_of(pair.local_slices), local).size());
  RC_ASSERT(filled <= numel(local));
  if (!padded) RC_ASSERT(filled == numel(local));
}

RC_GTEST_PROP(PlacementProperty, PeersOfAPieceAreThoseThatKeepIt, ()) {
  const Shape shape = any_shape();
  const Grid grid = any_grid();
  const Placement placement = any_placement(shape, grid);
  const int rank = pick(0, grid.size() - 1);
  const std::vector<Piece> mine = pieces(placement, shape, grid, rank);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const std::vector<int> peers =
        same_piece_peers(placement, shape, grid, rank, i, {Axis::pp, Axis::dp, Axis::cp, Axis::tp});
    RC_ASSERT(static_cast<std::int64_t>(peers.size()) == mine[i].replicas);
  }
}

/// A tensor sharded over the ranks of one layout.
struct Spread {
  Shape local_shape;
  std::vector<std::vector<SlicesPair>> slices;    // by rank
  std::vector<std::vector<std::int64_t>> values;  // by rank; -1 is padding
};

Spread any_spread(const Shape& shape) {
  const Grid grid = any_grid();
  const Placement placement = any_placement(shape, grid);
  Spread spread{local_shape(placement, shape, grid), {}, {}};
  for (int rank = 0; rank < grid.size(); ++rank)
    spread.slices.push_back(sharded_info(placement, shape, grid, rank).local_global_slices_pairs);
  spread.values.assign(grid.size(), std::vector<std::int64_t>(numel(spread.local_shape), -1));
  return spread;
}

/// `to`, whose values must be unset, filled with those of `from`: every element, alike from all ranks that hold it.
Spread moved(const Spread& from, Spread to) {
  for (std::size_t rank = 0; rank < to.slices.size(); ++rank)
    for (const SlicesPair& wanted : to.slices[rank]) {
      for (std::size_t source = 0; source < from.slices.size(); ++source)
        for (const SlicesPair& held : from.slices[source]) {
          const std::optional<Overlap> common = intersect(held, wanted);
          if (!common) continue;
          const std::vector<std::int64_t> there = indices(common->from_local, from.local_shape),
                                          here = indices(common->to_local, to.local_shape);
          RC_ASSERT(there.size() == here.size());
          for (std::size_t i = 0; i < there.size(); ++i) {
            std::int64_t& value = to.values[rank][here[i]];
            RC_ASSERT(value == -1 || value == from.values[source][there[i]]);
            value = from.values[source][there[i]];
          }
        }
      for (const std::int64_t i : indices(box_of(wanted.local_slices), to.local_shape))
        RC_ASSERT(to.values[rank][i] != -1);
    }
  return to;
}

RC_GTEST_PROP(PlacementProperty, FromAnyLayoutToAnyOtherNothingIsLost, ()) {
  const Shape shape = any_shape();
  const Slices everything = slices_of(resolve(Slices(shape.size()), shape));
  Spread whole{shape, {{{everything, everything}}}, {{}}};
  for (std::int64_t i = 0; i < numel(shape); ++i) whole.values[0].push_back(i);
  const Spread unset_b = any_spread(shape), unset_c = any_spread(shape);
  Spread unset_whole = whole;
  std::ranges::fill(unset_whole.values[0], -1);

  const Spread a = moved(whole, any_spread(shape));
  const Spread c = moved(moved(a, unset_b), unset_c);
  RC_ASSERT(c.values == moved(a, unset_c).values);
  RC_ASSERT(c.values == moved(whole, unset_c).values);
  RC_ASSERT(moved(c, unset_whole).values == whole.values);
}

}  // namespace
}  // namespace trireme
