#include "trireme/schedule/generate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::schedule {
namespace {

TEST(Generate, OneFOneBReadsAsTheTextbook) {
  EXPECT_EQ(str(one_f_one_b(0, 3, 4)), "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3");
  EXPECT_EQ(str(one_f_one_b(1, 3, 4)), "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3");
  EXPECT_EQ(str(one_f_one_b(2, 3, 4)), "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3");
}

TEST(Generate, AllForwardAllBackward) { EXPECT_EQ(str(all_forward_all_backward(1, 2, 3)), "1F0 1F1 1F2 1B0 1B1 1B2"); }

// SC21 paper (arXiv 2104.04473), figure 4, bottom: 4 devices, 2 chunks each, 8 microbatches; the first device's row.
TEST(Generate, InterleavedIsFigure4OfThePaper) {
  EXPECT_EQ(
      str(interleaved(0, 4, 8, 2)),
      "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 0F6 4B0 0F7 4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 0B1 0B2 0B3 4B4 4B5 4B6 4B7 "
      "0B4 0B5 0B6 0B7");
}

TEST(Generate, InterleavedWithOneVirtualStageIsOneFOneB) { EXPECT_EQ(interleaved(1, 4, 6, 1), one_f_one_b(1, 4, 6)); }

TEST(Generate, Zb1pPutsOffOneWeightGradientForEachRankAbove) {
  EXPECT_EQ(str(zb1p(0, 3, 4)), "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3");
  EXPECT_EQ(str(zb1p(2, 3, 4)), "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3");
}

TEST(Generate, ZbvFillsBothSidesOfTheVAndKeepsWeightGradientsForTheEnd) {
  EXPECT_EQ(str(zbv(0, 2, 4)),
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3");
  EXPECT_EQ(str(zbv(1, 2, 4)),
            "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3");
}

// A backward is split only where the weight gradient fills idle time.
TEST(Generate, DualpipeVCutsAsFewBackwardsAsItCan) {
  EXPECT_EQ(str(dualpipe_v(0, 2, 4)), "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3");
  EXPECT_EQ(str(dualpipe_v(1, 2, 4)), "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3");
}

TEST(Generate, TheVSchedulesPutTheLossOnTheFirstRank) {
  for (const char* name : {"zbv", "dualpipe-v"}) {
    const Schedule s = make_schedule(name, 3, 8);
    EXPECT_EQ(s.rank_of_chunk, (std::vector{0, 1, 2, 2, 1, 0})) << name;
  }
}

TEST(Generate, NamesAliasesAndChunks) {
  EXPECT_THAT(schedule_names(), testing::ElementsAre("afab", "1f1b", "interleaved-1f1b", "zb1p", "zbv", "dualpipe-v"));
  EXPECT_EQ(canonical_schedule("gpipe"), "afab");
  EXPECT_EQ(canonical_schedule("zero-bubble"), "zb1p");
  EXPECT_EQ(canonical_schedule("1f1b"), "1f1b");
  EXPECT_EQ(canonical_schedule(""), "");
  EXPECT_EQ(canonical_schedule("2f2b"), "");
  EXPECT_EQ(chunks_per_rank(ScheduleKind::zbv, 1), 2);
  EXPECT_EQ(chunks_per_rank(ScheduleKind::one_f_one_b, 3), 1);
  EXPECT_EQ(chunks_per_rank(ScheduleKind::interleaved, 3), 3);
  for (std::size_t i = 0; i < schedule_names().size(); ++i)
    EXPECT_EQ(parse_schedule_kind(schedule_names()[i]), static_cast<ScheduleKind>(i));
  EXPECT_EQ(parse_schedule_kind("gpipe"), ScheduleKind::all_forward_all_backward);
}

TEST(Generate, BadNumbersAreRefusedByName) {
  const auto error = [](const char* name, int ranks, int microbatches, int v) {
    return message_of<ConfigError>([&] { make_schedule(name, ranks, microbatches, v); });
  };
  EXPECT_EQ(error("1f1b", 0, 1, 1), "schedule 1f1b: stages = 0: must be at least 1");
  EXPECT_EQ(error("1f1b", 1, 0, 1), "schedule 1f1b: microbatches = 0: must be at least 1");
  EXPECT_EQ(error("interleaved-1f1b", 1, 1, 0), "schedule interleaved-1f1b: virtual_stages = 0: must be at least 1");
  EXPECT_EQ(error("2f2b", 1, 1, 1),
            "unknown schedule '2f2b'\n  fix: one of afab 1f1b interleaved-1f1b zb1p zbv dualpipe-v");
}

}  // namespace
}  // namespace trireme::schedule
