#include "trireme/schedule/schedule.hpp"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "trireme/base/error.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::schedule {
namespace {

TEST(Action, ReadsAsItIsWritten) {
  EXPECT_EQ(str(Action{ActionKind::I, 12, 345}), "12I345");
  EXPECT_EQ(parse_action("12I345"), (Action{ActionKind::I, 12, 345}));
  EXPECT_EQ(str(parse_program("0F0  0F1\t0B0\n0W1 ")), "0F0 0F1 0B0 0W1");
  EXPECT_TRUE(parse_program("  ").empty());
}

TEST(Action, AWordThatIsNoneIsNamed) {
  for (const char* word : {"", "F", "0F", "F0", "0X1", "-1F0", "0F-1", "0F1x", "99999999999F0", "0f1", "0F+1"})
    EXPECT_THAT(message_of<ConfigError>([&] { parse_action(word); }), testing::HasSubstr(text("'", word, "'")));
}

TEST(Schedule, AnySurvivesItsTextForm) {
  EXPECT_TRUE(rc::check([] {
    const auto name = *rc::gen::elementOf(schedule_names());
    const Schedule schedule =
        make_schedule(name, *rc::gen::inRange(1, 9), *rc::gen::inRange(1, 20), *rc::gen::inRange(1, 5));
    RC_ASSERT(parse_schedule(str(schedule)) == schedule);
  }));
}

TEST(Schedule, EdgesThatAreNoChainAreWrittenToo) {
  Schedule diamond{.name = "diamond",
                   .microbatches = 1,
                   .rank_of_chunk = {0, 1, 1, 0},
                   .edges = {{0, 1}, {0, 2}, {1, 3}, {2, 3}},
                   .programs = {parse_program("0F0 3F0 3B0 0B0"), parse_program("1F0 2F0 2B0 1B0")}};
  EXPECT_EQ(parse_schedule(str(diamond)), diamond);
}

TEST(Schedule, ABadFileIsRefusedByLine) {
  const auto error = [](const char* file) { return message_of<ConfigError>([&] { parse_schedule(file); }); };
  EXPECT_EQ(error(""), "schedule: no line 'schedule NAME microbatches N' with N > 0");
  EXPECT_EQ(error("schedule x microbatches 2"), "schedule: no line 'chunks on ranks R R ...'");
  EXPECT_EQ(error("schedule x microbatches 2\nchunks on ranks 0"), "schedule: no line 'rank 0: STEP STEP ...'");
  EXPECT_EQ(error("schedule x microbatches 2 3"), "schedule, line 1: expected 'schedule NAME microbatches N'");
  EXPECT_THAT(error("\n\nrank 0: 0F0 0X0"), testing::StartsWith("schedule, line 3: schedule step '0X0' is not"));
  EXPECT_EQ(error("\nschedul x"), "schedule, line 2: unknown word 'schedul'");
  EXPECT_EQ(error("schedule x microbatches many"), "schedule, line 1: 'many' is not a whole number");
  EXPECT_EQ(error("schedule x microbatches -4"), "schedule, line 1: '-4' is not a whole number");
  EXPECT_EQ(error("chunks in ranks 0"), "schedule, line 1: expected 'chunks on ranks R R ...'");
  EXPECT_EQ(error("edges 0 1 2"), "schedule, line 1: edges are pairs of chunks");
  EXPECT_EQ(error("rank 1: 0F0"), "schedule, line 1: expected 'rank 0: STEP STEP ...', found 'rank 1:'");
}

}  // namespace
}  // namespace trireme::schedule
