#include "trireme/layout/flat_boxes.hpp"

#include <map>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/layout_helpers.hpp"

namespace trireme {
namespace {

TEST(FlatBoxes, ARangeIsFewBoxes) {
  EXPECT_EQ(boxes_of_range({4, 5}, {0, 20}), (std::vector<Box>{{{0, 4}, {0, 5}}}));
  EXPECT_EQ(boxes_of_range({4, 5}, {5, 15}), (std::vector<Box>{{{1, 3}, {0, 5}}}));
  EXPECT_EQ(boxes_of_range({4, 5}, {3, 17}), (std::vector<Box>{{{0, 1}, {3, 5}}, {{1, 3}, {0, 5}}, {{3, 4}, {0, 2}}}));
  EXPECT_EQ(boxes_of_range({4, 5}, {6, 8}), (std::vector<Box>{{{1, 2}, {1, 3}}}));
  EXPECT_EQ(boxes_of_range({}, {0, 1}), (std::vector<Box>{{}}));
  EXPECT_TRUE(boxes_of_range({4, 0}, {0, 0}).empty());
  EXPECT_THROW(boxes_of_range({4, 5}, {3, 21}), InternalError);
}

/// The middle of a fused gate-up shard: the end of the gate's part and the begin of the up's.
TEST(FlatBoxes, ThroughFusedSections) {
  const Placement placement{.cuts = {gate_up(Axis::tp, 0, 6)}};
  const Grid grid = Grid::dense({.tp = 2});
  const std::vector<FlatBox> boxes = flat_boxes(pieces(placement, {12, 2}, grid, 1), {6, 2}, {4, 8});
  EXPECT_EQ(boxes, (std::vector<FlatBox>{{{{5, 6}, {0, 2}}, 0, {2, 2}, {{0, 1}, {0, 2}}},
                                         {{{9, 10}, {0, 2}}, 0, {2, 2}, {{1, 2}, {0, 2}}}}));
}

RC_GTEST_PROP(FlatBoxesProperty, TheElementsOfTheBoxesAreTheRange, ()) {
  const Shape shape = any_shape();
  const auto size = static_cast<int>(numel(shape));
  const int begin = pick(0, size), end = pick(begin, size);
  const std::vector<Box> boxes = boxes_of_range(shape, {begin, end});
  RC_ASSERT(boxes.size() <= 2 * std::max<std::size_t>(shape.size(), 1) - 1);
  std::int64_t next = begin;
  for (const Box& box : boxes)
    for (const std::int64_t index : indices(box, shape)) RC_ASSERT(index == next++);
  RC_ASSERT(next == end);
}

/// Each rank's tensor is flattened and cut into shards, as ZeRO does; from the shards the full tensor is assembled, and
/// from the full tensor every shard.
RC_GTEST_PROP(FlatBoxesProperty, ShardsToFullAndBack, ()) {
  const Shape shape = any_shape();
  const Grid grid = any_grid();
  const Placement placement = any_placement(shape, grid);
  const Shape local = local_shape(placement, shape, grid);
  const int shards = pick(1, 4);
  const std::int64_t length = (numel(local) + shards - 1) / shards;
  std::vector<std::int64_t> full(static_cast<std::size_t>(numel(shape)), -1);
  for (int rank = 0; rank < grid.size(); ++rank) {
    // What the rank holds, by the slices that the placement states.
    std::vector<std::int64_t> values(static_cast<std::size_t>(numel(local)), -1);
    const std::vector<Piece> mine = pieces(placement, shape, grid, rank);
    for (const Piece& piece : mine) {
      const std::vector<std::int64_t> from = indices(box_of(piece.slices.global_slices), shape),
                                      to = indices(box_of(piece.slices.local_slices), local);
      for (std::size_t i = 0; i < to.size(); ++i) values[static_cast<std::size_t>(to[i])] = from[i];
    }
    for (int s = 0; s < shards; ++s) {
      const Range range{std::min(s * length, numel(local)), std::min((s + 1) * length, numel(local))};
      std::vector<std::int64_t> shard(static_cast<std::size_t>(range.size()), -1);
      for (const FlatBox& box : flat_boxes(mine, local, range)) {
        const std::vector<std::int64_t> global = indices(box.global, shape), inside = indices(box.in_block, box.block);
        RC_ASSERT(global.size() == inside.size());
        for (std::size_t i = 0; i < global.size(); ++i) {
          const auto at = static_cast<std::size_t>(box.block_begin + inside[i]);
          RC_ASSERT(shard[at] == -1);  // each element once
          shard[at] = global[i];
          full[static_cast<std::size_t>(global[i])] = global[i];
        }
      }
      for (std::size_t i = 0; i < shard.size(); ++i)
        RC_ASSERT(shard[i] == values[static_cast<std::size_t>(range.begin) + i]);
    }
  }
  for (std::size_t i = 0; i < full.size(); ++i) RC_ASSERT(full[i] == static_cast<std::int64_t>(i));
}

}  // namespace
}  // namespace trireme
