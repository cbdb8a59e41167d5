#include "trireme/report/run_segments.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/trace.hpp"
#include "trireme/report/page.hpp"
#include "trireme/report/run_facts.hpp"
#include "trireme/report/sections.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Event start(std::int64_t step, int ranks, const std::string& layout, double time = 0) {
  Event event{.time = time, .name = "start", .words = {{"layout", layout}, {"ranks", text(ranks)}}, .numbers = {}};
  event.words["step"] = text(step);
  event.numbers = {{"step", static_cast<double>(step)}, {"ranks", ranks}};
  return event;
}

Columns rows(std::int64_t first, std::int64_t last) {
  Columns metrics;
  for (std::int64_t step = first; step <= last; ++step) metrics.steps.push_back(step);
  return metrics;
}

const std::string kDp4 = "pp=1 dp=4 cp=1 tp=1", kDp2Tp2 = "pp=1 dp=2 cp=1 tp=2";

std::string text_of(const std::vector<Event>& events, const Columns& metrics) {
  RunFiles run;
  run.segments = segments_of(events, metrics);
  return segments_text(run);
}

TEST(Segments, AreTheStepsOfEachLayout) {
  EXPECT_EQ(text_of({start(1, 4, kDp4)}, rows(1, 20)), "steps 1–20: dp 4");
  EXPECT_EQ(text_of({start(1, 4, kDp4), start(21, 4, kDp2Tp2)}, rows(1, 40)),
            "steps 1–20: dp 4; steps 21–40: dp 2 tp 2");
  EXPECT_EQ(text_of({start(1, 4, kDp4), start(21, 1, "pp=1 dp=1 cp=1 tp=1")}, rows(1, 21)),
            "steps 1–20: dp 4; step 21: 1 rank");
  EXPECT_EQ(text_of({start(1, 4, kDp4), start(21, 4, kDp2Tp2)}, rows(1, 20)),
            "steps 1–20: dp 4; from step 21: dp 2 tp 2");
}

TEST(Segments, RestartsOnOneLayoutAreOne) {
  const std::vector<Event> events = {start(1, 4, kDp4), start(11, 4, kDp4), start(6, 4, kDp4)};
  const std::vector<Segment> segments = segments_of(events, rows(1, 20));
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_THAT(segments[0].starts, ElementsAre(1, 6)) << "step 11 was trained again, in the middle of the last start";
}

TEST(Segments, StepsThatWereTrainedAgainAreOfTheLastStart) {
  // 12 steps on four ranks, killed; from step 5 on as dp 2 tp 2, killed; from step 3 on as dp 4 again.
  const std::vector<Event> events = {start(1, 4, kDp4, 100), start(5, 4, kDp2Tp2, 200), start(3, 4, kDp4, 300)};
  EXPECT_EQ(text_of({events[0], events[1]}, rows(1, 20)), "steps 1–4: dp 4; steps 5–20: dp 2 tp 2");
  EXPECT_EQ(text_of(events, rows(1, 20)), "steps 1–2: dp 4; steps 3–20: dp 4");
  EXPECT_EQ(began_on_its_layout(events, 2), 100);
  EXPECT_EQ(began_on_its_layout(events, 6), 300) << "a trace of step 6 from before is of dp 4 or dp 2 tp 2 of then";
}

TEST(Segments, OtherWordsOfALayoutCountToo) {
  Event a = start(1, 4, kDp4), b = start(11, 4, kDp4);
  a.words["zero"] = "1";
  b.words["zero"] = "3";
  EXPECT_EQ(text_of({a, b}, rows(1, 20)), "steps 1–10: dp 4; steps 11–20: dp 4 zero 3");
}

TEST(Segments, WithoutEventsThereIsOne) {
  EXPECT_EQ(text_of({}, rows(5, 20)), "steps 5–20: layout not known");
  EXPECT_EQ(text_of({start(11, 4, kDp4)}, rows(1, 20)), "steps 1–10: layout not known; steps 11–20: dp 4");
  EXPECT_EQ(segments_of({}, {}).size(), 1u);
}

TEST(Segments, OnlyTheLastOnesAreListed) {
  std::vector<Event> events;
  for (int i = 0; i < 9; ++i) events.push_back(start(1 + i, 4, i % 2 == 0 ? kDp4 : kDp2Tp2));
  EXPECT_THAT(text_of(events, rows(1, 9)), HasSubstr("3 earlier; step 4: dp 2 tp 2; "));
}

/// The files of a run: 10 steps as dp 4, then 10 as dp 2, each of which has its own speed, memory and slowest rank.
struct ContinuedRun {
  TempFolder folder;

  explicit ContinuedRun(double started_again = 1.6e9 + 100) {
    std::string metrics, ranks;
    for (int step = 1; step <= 20; ++step) {
      const bool before = step <= 10;
      metrics += text("{\"step\":", step, ",\"loss\":", 21 - step, ",\"tokens_per_sec\":", before ? 400 : 200,
                      ",\"train_time_s\":1,\"mem_peak_gib\":", before ? 4 : 2,
                      before ? ",\"bubble_ideal_frac\":0.25,\"bubble_frac\":0.5" : "", "}\n");
      ranks += text("{\"step\":", step, ",\"own_work_s\":", before ? "[1,1,1,9]" : "[1,2]", "}\n");
    }
    replace_file(folder.path() / "metrics.jsonl", metrics);
    replace_file(folder.path() / "ranks.jsonl", ranks);
    replace_file(
        folder.path() / "events.jsonl",
        text("{\"time\":", 1.6e9,
             R"(,"event":"start","ranks":4,"layout":"pp=1 dp=4 cp=1 tp=1","step":1,"predicted_bytes":4e9})",
             "\n{\"time\":", std::fixed, started_again,
             R"(,"event":"start","ranks":2,"layout":"pp=1 dp=2 cp=1 tp=1","step":11,"predicted_bytes":2e9})", "\n"));
    replace_file(folder.path() / "config.toml", "[model]\npreset = \"tiny-llama\"\n[parallelism]\ndp = 2\n");
  }

  void trace(int step, int rank, int world, double time) const {
    const auto ns = static_cast<std::int64_t>(time * 1e9);
    Tracer tracer({.rank = rank, .world_size = world, .backend = "gloo", .clock = [ns] { return ns; }});
    tracer.enable();
    tracer.add_span(0, "step", "whole step", ns, 1'000'000);
    std::filesystem::create_directories(folder.path() / text("trace/step", step));
    tracer.write(folder.path() / text("trace/step", step) / text("rank", rank, ".json"));
  }
};

TEST(ContinuedRuns, FactsAreOfTheLastLayout) {
  const ContinuedRun files;
  const RunFacts facts = facts_of(read_run(files.folder.path()));
  EXPECT_EQ(facts.median_tokens_per_sec, 200);
  EXPECT_EQ(facts.peak_gib, 2);
  EXPECT_EQ(facts.slowest_rank, 1) << "rank 3 was of the layout before";
  EXPECT_EQ(facts.ideal_bubble, std::nullopt) << "the last layout has no pipeline";
  EXPECT_EQ(facts.bubble, std::nullopt);
  EXPECT_EQ(facts.first_loss, 20) << "the loss is of the whole run";
  EXPECT_EQ(facts.train_seconds, 20);
}

TEST(ContinuedRuns, ThePageSaysWhichLayoutIsWhere) {
  const ContinuedRun files;
  const std::string page = page_html({read_run(files.folder.path())}, {});
  EXPECT_THAT(page, HasSubstr("<code>steps 1–10: dp 4; steps 11–20: dp 2</code>"));
  EXPECT_THAT(page, HasSubstr("<title>steps 11–20: dp 2</title>")) << "a line in the plots";
  EXPECT_THAT(page, HasSubstr("Earlier layout: steps 1–10, dp 4"));
  const std::string map = rank_times_html({read_run(files.folder.path())});
  EXPECT_THAT(map.substr(0, map.find("<details>")), Not(HasSubstr("rank 2"))) << "the last layout has two ranks";
  EXPECT_THAT(map.substr(map.find("<details>")), HasSubstr("rank 3"));
}

TEST(ContinuedRuns, TracesAreOfTheLayoutThatTrainedTheStep) {
  const double before = 1.6e9 + 10, after = 1.6e9 + 110;
  const ContinuedRun files;
  for (int rank = 0; rank < 4; ++rank) files.trace(9, rank, 4, before);
  for (int rank = 0; rank < 4; ++rank) files.trace(12, rank, 4, before);  // this step was trained again, by two ranks
  for (int rank = 0; rank < 2; ++rank) files.trace(12, rank, 2, after);
  for (int rank = 0; rank < 2; ++rank) files.trace(15, rank, 2, before);  // not traced again
  RunFiles run = read_run(files.folder.path());
  ASSERT_EQ(run.traces.size(), 2u);
  EXPECT_EQ(run.traces[0].ranks.size(), 4u);
  EXPECT_EQ(run.traces[1].step, 12);
  EXPECT_EQ(run.traces[1].ranks.size(), 2u) << "ranks 2 and 3 are of the layout before";
  EXPECT_EQ(earlier_layout_html(run, 12), "");

  run.traces.pop_back();
  EXPECT_THAT(overlap_html({run}), HasSubstr("Step 9 is of an earlier layout (steps 1–10: <code>dp 4</code>)"));
}

}  // namespace
}  // namespace trireme::report
