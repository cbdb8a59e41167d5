#include "trireme/layout/copies.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/layout_helpers.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;

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

TEST(PlanCopies, ReadersSpreadOverReplicasAndPreferTheirOwn) {
  const SlicesPair all = pair({{0, 4}}, {{0, 4}});
  const std::vector<std::vector<SlicesPair>> replicas(4, {all});
  for (int rank : {0, 1, 2, 3, 6}) {
    const std::vector<Copy> copies = plan_copies(replicas, {all}, rank);
    ASSERT_EQ(copies.size(), 1U);
    EXPECT_EQ(copies[0].from_rank, rank % 4);
  }
}

TEST(PlanCopies, SourcesThatOverlapAreReadOnce) {
  const std::vector<std::vector<SlicesPair>> from{{pair({{0, 5}}, {{0, 5}})}, {pair({{0, 5}}, {{3, 8}})}};
  const std::vector<Copy> copies = plan_copies(from, {pair({{0, 8}}, {{0, 8}})}, 0);
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(copies[0].overlap, (Overlap{{{0, 5}}, {{0, 5}}, {{0, 5}}}));
  EXPECT_EQ(copies[1].overlap, (Overlap{{{2, 5}}, {{5, 8}}, {{5, 8}}}));
}

TEST(PlanCopies, AMissingRegionIsNamed) {
  const std::vector<std::vector<SlicesPair>> from{{pair({{0, 8}, {0, 4}}, {{0, 8}, {0, 4}})}, {}};
  const SlicesPair wanted = pair({{0, 4}, {0, 8}}, {{4, 8}, {0, 8}});
  EXPECT_THAT(message_of<CheckpointError>([&] { plan_copies(from, {wanted}, 3); }),
              HasSubstr("elements [4:8, 4:8] of the whole tensor, wanted by rank 3: none of the 2 sources keeps them"));
  EXPECT_THROW(plan_copies({}, {wanted}, 0), CheckpointError);
  EXPECT_TRUE(plan_copies({}, {}, 0).empty());
  EXPECT_TRUE(plan_copies({}, {pair({{0, 0}}, {{4, 4}})}, 0).empty());
}

/// Random, possibly overlapping boxes as sources: an element is copied exactly once if any rank holds it.
RC_GTEST_PROP(CopiesProperty, EveryElementIsCopiedOnceOrTheGapIsReported, ()) {
  const auto range = [] {
    const int begin = pick(0, 5);
    return Range{begin, pick(begin + 1, 7)};
  };
  std::vector<std::vector<SlicesPair>> from(pick(1, 8));
  std::set<std::pair<std::int64_t, std::int64_t>> kept, copied;
  for (std::vector<SlicesPair>& rank : from) {
    const Range rows = range(), columns = range();
    rank.push_back(pair({{0, rows.size()}, {0, columns.size()}}, {rows, columns}));
    for (std::int64_t row = rows.begin; row < rows.end; ++row)
      for (std::int64_t column = columns.begin; column < columns.end; ++column) kept.emplace(row, column);
  }
  const Range rows = range(), columns = range();
  bool complete = true;
  for (std::int64_t row = rows.begin; row < rows.end; ++row)
    for (std::int64_t column = columns.begin; column < columns.end; ++column)
      complete = complete && kept.contains({row, column});
  const std::vector<SlicesPair> wanted{pair({{0, rows.size()}, {0, columns.size()}}, {rows, columns})};
  const int to_rank = pick(0, 19);
  if (!complete) {
    RC_ASSERT_THROWS_AS(plan_copies(from, wanted, to_rank), CheckpointError);
    return;
  }
  for (const Copy& copy : plan_copies(from, wanted, to_rank)) {
    const Box& box = copy.overlap.global;
    RC_ASSERT(intersect(from[copy.from_rank][0], pair(box, box)).value().from_local == copy.overlap.from_local);
    for (std::int64_t row = box[0].begin; row < box[0].end; ++row)
      for (std::int64_t column = box[1].begin; column < box[1].end; ++column)
        RC_ASSERT(copied.emplace(row, column).second);
  }
  RC_ASSERT(static_cast<std::int64_t>(copied.size()) == rows.size() * columns.size());
}

}  // namespace
}  // namespace trireme
