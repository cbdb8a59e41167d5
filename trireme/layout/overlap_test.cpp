#include "trireme/layout/overlap.hpp"

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/layout_helpers.hpp"

namespace trireme {
namespace {

SlicesPair pair(const Box& local, const Box& global) { return {slices_of(local), slices_of(global)}; }

TEST(Intersect, GivesTheCommonElementsInAllCoordinates) {
  const SlicesPair from = pair({{0, 4}, {0, 8}}, {{4, 8}, {0, 8}}), to = pair({{10, 16}, {0, 3}}, {{0, 6}, {5, 8}});
  EXPECT_EQ(intersect(from, to), (Overlap{{{0, 2}, {5, 8}}, {{14, 16}, {0, 3}}, {{4, 6}, {5, 8}}}));
}

TEST(Intersect, NeighboursShareNothingAndNumbersWithoutDimsShareTheirOne) {
  EXPECT_EQ(intersect(pair({{0, 4}}, {{0, 4}}), pair({{0, 4}}, {{4, 8}})), std::nullopt);
  EXPECT_EQ(intersect(pair({{0, 0}}, {{2, 2}}), pair({{0, 4}}, {{0, 4}})), std::nullopt);
  EXPECT_EQ(intersect(pair({}, {}), pair({}, {})), Overlap{});
}

TEST(Intersect, RefusesTensorsOfOtherDimsAndSlicesNotSpeltOut) {
  EXPECT_THROW(intersect(pair({{0, 4}}, {{0, 4}}), pair({}, {})), CheckpointError);
  EXPECT_THROW(intersect({{Slice{}}, {Slice{}}}, pair({{0, 4}}, {{0, 4}})), InternalError);
}

}  // namespace
}  // namespace trireme
