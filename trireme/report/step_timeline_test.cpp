#include "trireme/report/step_timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::report {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

RunFiles run_with_two_steps() {
  RunFiles run;
  run.name = "run & <name>";
  for (const int step : {3, 4}) {
    RankTrace rank;
    rank.step = {0, 1};
    rank.update = {0.8, 1};
    rank.actions = {{.kind = schedule::ActionKind::F, .microbatch = 0, .span = {0, 0.4}},
                    {.kind = schedule::ActionKind::B, .microbatch = 0, .span = {0.4, 0.8}}};
    rank.layers = {{"layers.0", false, {0, 0.4}}};
    rank.calls = {
        {.op = "all_reduce", .group = "dp{0,1}", .what = "all_reduce sum f32[8]", .bytes = 32, .span = {0.4, 0.7}},
        {.op = "all_reduce", .group = "dp{0,1}", .what = "all_reduce sum f32[4]", .bytes = 16, .span = {0.5, 0.8}},
        {.op = "send", .group = "channel{0,1}", .what = "send f32[1]", .bytes = 4, .span = {0.4, 0.4001}}};
    rank.waits = {{0.7, 0.8}};
    run.traces.push_back({.step = step, .begin = 1e9 + step, .ranks = {rank}});
  }
  return run;
}

TEST(StepTimeline, DrawsStepsActionsAndCalls) {
  const std::string svg = step_timeline_svg(run_with_two_steps());
  EXPECT_THAT(svg, AllOf(HasSubstr("run &amp; &lt;name&gt;"), HasSubstr(">step 3<"), HasSubstr(">step 4<"),
                         HasSubstr(">F0<"), HasSubstr(">layers.0<"), HasSubstr(">dp<"), HasSubstr(">channel<"),
                         HasSubstr("all_reduce sum f32[8] on dp{0,1}: 300 ms")));
  // Overlapping calls have half of the lane each; a call without width is part of a path.
  EXPECT_THAT(svg, AllOf(HasSubstr("height=\"7.5\""), HasSubstr("fill=\"#9a6dd7\" d=\"M"), Not(HasSubstr("nan"))));
}

/// The drawing is as long as the steps, whatever lies between them; what follows directly keeps its distance.
TEST(StepTimeline, LeavesOutStepsThatWereNotTraced) {
  RunFiles run = run_with_two_steps();
  const auto mark_of_second = [&] {
    const std::string svg = step_timeline_svg(run), before = "<line x1=\"";
    const std::size_t second = svg.find(before, svg.find(before) + 1);
    return std::stod(svg.substr(second + before.size()));
  };
  EXPECT_NEAR(mark_of_second(), 70 + 1115 * 1.0 / 2, 0.01);
  run.traces[1].begin += 1;
  EXPECT_NEAR(mark_of_second(), 70 + 1115 * 2.0 / 3, 0.01) << "a second between two steps";
  run.traces[1].step = 500;
  run.traces[1].begin += 1e6;
  EXPECT_NEAR(mark_of_second(), 70 + 1115 * 1.1 / 2.1, 0.01);
}

TEST(StepTimeline, DrawsManyGroupsTogether) {
  RunFiles run = run_with_two_steps();
  for (int i = 0; i < 1000; ++i)
    run.traces[0].ranks[0].calls.push_back(
        {.op = "all_gather", .group = text("g", i, "{0,1}"), .what = "all_gather f32[1]", .bytes = {}, .span = {0, 1}});
  const std::string svg = step_timeline_svg(run);
  EXPECT_THAT(svg, HasSubstr(">others<"));
  EXPECT_THAT(svg, Not(HasSubstr(">g999<")));
}

TEST(StepTimeline, NeedsATracedStep) {
  EXPECT_THROW(step_timeline_svg(RunFiles{}), ConfigError);
  RunFiles empty;
  empty.traces.push_back({.step = 1, .ranks = {RankTrace{}}});
  EXPECT_THROW(step_timeline_svg(empty), DataError);
}

}  // namespace
}  // namespace trireme::report
