#include "trireme/schedule/draw.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/schedule/generate.hpp"

namespace trireme::schedule {
namespace {

TEST(DrawText, ShowsOneFOneBAsInTheTextbook) {
  const Schedule schedule = make_schedule("1f1b", 3, 3);
  EXPECT_EQ(draw_text(schedule, replay(schedule)),
            "rank 0 F0 F1 F2 ............B0--- ...B1--- ...B2--- \n"
            "rank 1 ...F0 F1 ......B0--- F2 B1--- ...B2--- ......\n"
            "rank 2 ......F0 B0--- F1 B1--- F2 B2--- ............\n");
}

TEST(DrawText, NamesTheChunkWhereARankHasSeveral) {
  const Schedule schedule = make_schedule("zbv", 2, 1);
  EXPECT_EQ(draw_text(schedule, replay(schedule)),
            "rank 0 0F0 ........3F0 3I0 3W0 ........0I0 0W0 \n"
            "rank 1 ....1F0 2F0 ........2I0 2W0 1I0 1W0 ....\n");
}

TEST(DrawText, GetsNarrowerAndThenSaysThatItIsCut) {
  const Schedule schedule = make_schedule("1f1b", 2, 8);
  const std::string narrow = draw_text(schedule, replay(schedule), {.width = 40});
  EXPECT_THAT(narrow, testing::StartsWith("rank 0 FF..B0FB1FB2FB3FB4FB5FB6.B7\nrank 1 .FB0FB1FB2FB3FB4FB5FB6FB7..\n"));
  const std::string cut = draw_text(schedule, replay(schedule), {.width = 20});
  EXPECT_THAT(cut, testing::HasSubstr("rank 0 FF..B0FB1FB2F\n"));
  EXPECT_THAT(cut, testing::HasSubstr("(the first 48% of the time; --svg FILE draws all of it)"));
}

TEST(DrawText, TellsChunksByCaseWhereThereIsNoRoomForNumbers) {
  const Schedule schedule = make_schedule("zbv", 2, 1);
  EXPECT_EQ(draw_text(schedule, replay(schedule), {.width = 20}),
            "rank 0 F..fiw..IW\n"
            "rank 1 .Ff..iwIW.\n");
}

TEST(DrawText, CostsFarApartAreCutAndNotAnError) {
  const Schedule schedule = make_schedule("1f1b", 2, 2);
  const ActionCosts costs{.F = 1e-9, .I = 1e6, .W = 1, .transfer = 1e6};
  const std::string drawn = draw_text(schedule, replay(schedule, costs), {.width = 40});
  EXPECT_THAT(drawn, testing::HasSubstr("(the first 0% of the time;"));
}

TEST(DrawText, ColorsOnlyWhenAsked) {
  const Schedule schedule = make_schedule("1f1b", 1, 1);
  EXPECT_EQ(draw_text(schedule, replay(schedule), {.color = true}),
            "rank 0 \x1b[30;42mF0 \x1b[0m\x1b[97;44mB0    \x1b[0m\n");
}

TEST(DrawSvg, HoldsEveryStepOnce) {
  const Schedule schedule = make_schedule("interleaved-1f1b", 4, 8, 2);
  const std::string svg = draw_svg(schedule, replay(schedule));
  EXPECT_THAT(svg, testing::StartsWith("<svg "));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  std::size_t drawn = 0, steps = 0;
  for (std::size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) ++drawn;
  for (const Program& program : schedule.programs) {
    steps += program.size();
    for (const Action& step : program) EXPECT_THAT(svg, testing::HasSubstr("<title>" + str(step) + ": "));
  }
  EXPECT_EQ(drawn, 1 + steps) << "the first is the name of the drawing";
}

TEST(Summary, GivesTheNumbersOfTheReplay) {
  const Schedule schedule = make_schedule("1f1b", 4, 8);
  EXPECT_EQ(summary(schedule, replay(schedule)),
            "1f1b: 4 ranks, 8 microbatches, 1 chunk per rank: makespan 33.00, bubble 9.00 (27.3% of the time)\n"
            "peak activations per rank: 4.00 microbatches of a stage until the input gradient, 4.00 until the "
            "weight gradient\n");
}

}  // namespace
}  // namespace trireme::schedule
