#include "trireme/report/trace_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/trace.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::report {
namespace {

using testing::ElementsAre;
using testing::Field;

constexpr std::int64_t kMs = 1'000'000;

/// What train/trace/step_trace.cpp writes of a step, in short.
TEST(ReadTrace, FindsActionsCallsWaitsAndMemory) {
  const TempFolder folder;
  Tracer tracer({.rank = 3, .world_size = 4, .backend = "gloo"});
  tracer.enable();
  const std::int64_t begin = tracer.now_ns();
  tracer.add_span(0, "step", "whole step", begin, 100 * kMs);
  tracer.add_span(0, "backward microbatch 2 chunk 1", "step", begin + 20 * kMs, 30 * kMs);
  tracer.add_span(0, "forward microbatch 2 chunk 1", "step", begin + 10 * kMs, 10 * kMs);
  tracer.add_span(0, "update", "step", begin + 60 * kMs, 40 * kMs);
  tracer.add_span(1, "layers.0", "forward", begin + 10 * kMs, kMs);
  tracer.add_span(2, "all_reduce sum f32[8]", "comm", begin + 10 * kMs, 5 * kMs,
                  {{"op", "all_reduce"}, {"group", "tp{2,3}"}, {"bytes", 32}, {"peer", -1}});
  tracer.add_span(2, "all_to_all f32[-1,8]", "comm", begin + 50 * kMs, kMs,
                  {{"op", "all_to_all"}, {"group", "ep{2,3}"}});
  tracer.add_span(3, "wait", "wait", begin + 12 * kMs, 3 * kMs);
  tracer.add_span(3, "wait", "wait", begin + 14 * kMs, 3 * kMs);
  tracer.add_counter("memory", begin + 10 * kMs, {{"allocated", 100}});
  tracer.add_counter("memory by purpose", begin + 10 * kMs, {{"weights", 60}, {"activations", 40}});
  const auto path = folder.path() / "rank3.json.gz";
  tracer.write(path);

  std::vector<RankTrace> ranks = {read_trace(path)};
  align(ranks);
  const RankTrace& trace = ranks[0];
  EXPECT_EQ(trace.rank, 3);
  EXPECT_NEAR(trace.step.end, 0.1, 1e-9);
  ASSERT_EQ(trace.actions.size(), 2u);
  EXPECT_EQ(trace.actions[0].kind, schedule::ActionKind::F);
  EXPECT_EQ(trace.actions[1].kind, schedule::ActionKind::B);
  EXPECT_EQ(trace.actions[1].microbatch, 2);
  EXPECT_EQ(trace.actions[1].chunk, 1);
  EXPECT_NEAR(trace.actions[1].span.length(), 0.03, 1e-9);
  EXPECT_NEAR(trace.update.begin, 0.06, 1e-9);
  ASSERT_EQ(trace.calls.size(), 2u);
  EXPECT_EQ(trace.calls[0].bytes, 32);
  EXPECT_FALSE(trace.calls[1].bytes);
  ASSERT_EQ(trace.waits.size(), 1u) << "waits of two threads are joined";
  EXPECT_NEAR(trace.waits[0].length(), 0.005, 1e-9);
  ASSERT_EQ(trace.memory.size(), 1u);
  EXPECT_TRUE(trace.memory[0].by_purpose);
  EXPECT_EQ(trace.memory[0].allocated, 100);
  EXPECT_EQ(trace.memory[0].activations, 40);
}

TEST(ReadTrace, KeepsNanoseconds) {
  const TempFolder folder;
  const auto path = folder.path() / "rank0.json";
  replace_file(path, R"({"traceEvents":[
    {"ph":"X","cat":"whole step","name":"step","ts":7800000000000.001,"dur":100000.003},
    {"ph":"X","cat":"step","name":"forward microbatch 0","ts":7800000000000.004,"dur":0.001}]})");
  std::vector<RankTrace> ranks = {read_trace(path)};
  align(ranks);
  EXPECT_EQ(ranks[0].step.begin, 0);
  EXPECT_DOUBLE_EQ(ranks[0].step.end, 0.100000003);
  EXPECT_DOUBLE_EQ(ranks[0].actions.at(0).span.begin, 3e-9);
  EXPECT_DOUBLE_EQ(ranks[0].actions[0].span.end, 4e-9);
}

TEST(ReadTrace, RefusesWhatIsNone) {
  const TempFolder folder;
  const auto path = folder.path() / "rank0.json";
  for (const char* contents : {"", "{", "[]", "{\"traceEvents\":3}"}) {
    replace_file(path, contents);
    EXPECT_THROW(read_trace(path), DataError) << contents;
  }
  replace_file(path, R"({"traceEvents":[1,null,{"ph":"X"},{"ph":"X","cat":"step","name":"forward microbatch x"},
                     {"ph":7,"name":[]},{"ph":"C","name":"memory","ts":"now","args":[]}]})");
  EXPECT_TRUE(read_trace(path).actions.empty());
}

TEST(Spans, AreJoinedAndCut) {
  const std::vector<Span> spans = joined({{5, 6}, {0, 2}, {1, 3}, {3, 4}});
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(total(spans), 5);
  EXPECT_EQ(total(common(spans, {{1, 5.5}})), 3.5);
  EXPECT_THAT(common({{0, 1}, {2, 3}}, {{0.5, 2.5}}), ElementsAre(Field(&Span::end, 1), Field(&Span::begin, 2)));
}

TEST(ParseGroup, KnowsItsRanksIfTheyAreListed) {
  EXPECT_EQ(parse_group("tp{0,1}").name, "tp");
  EXPECT_THAT(parse_group("tp{0,12}").ranks, ElementsAre(0, 12));
  EXPECT_EQ(parse_group("tp{0,12}").size, 2);
  const GroupText many = parse_group("dp{0,1,2,3,4,5,6,7,...,63: 64 ranks}");
  EXPECT_EQ(many.size, 64);
  EXPECT_TRUE(many.ranks.empty());
  for (const char* cut_off : {"dp{0,1,2", "dp", "", "dp{", "dp{}"}) EXPECT_EQ(parse_group(cut_off).size, 0) << cut_off;
}

}  // namespace
}  // namespace trireme::report
