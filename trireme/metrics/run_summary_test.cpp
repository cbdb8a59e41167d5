#include "trireme/metrics/run_summary.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace trireme::metrics {
namespace {

RunSummary full_summary() {
  return {.steps = 1400,
          .seconds = 14.25,
          .first_loss = 6.2391,
          .last_loss = 2.3124,
          .median_tokens_per_sec = 59'012,
          .slowest = SlowestRank{.rank = 3, .excess = 0.021},
          .shares = {{"forward", 0.31}, {"backward", 0.52}, {"comm exposed", 0.1}},
          .memory_predicted_gib = 0.0400390625,
          .memory_measured_gib = 0.0419921875,
          .saved = "runs/x/checkpoints/step-400",
          .skipped = 2,
          .next = {"trireme report runs/x", "trireme generate runs/x"}};
}

TEST(SummaryText, TellsAll) {
  EXPECT_EQ(
      summary_text(full_summary(), Style()),
      "done    1,400 steps in 14.2 s · loss 6.239 → 2.312 · median 59K tok/s · slowest rank 3 (+2.1%) · 2 updates "
      "skipped\n"
      "        where a step goes: forward 31% · backward 52% · comm exposed 10%\n"
      "        memory predicted 41.0 MiB, measured 43.0 MiB (+4.9%)\n"
      "saved   runs/x/checkpoints/step-400\n"
      "next    trireme report runs/x\n"
      "        trireme generate runs/x\n");
}

TEST(SummaryText, TellsNoMoreThanIsKnown) {
  EXPECT_EQ(summary_text({.seconds = 0.5}, Style()), "done    0 steps in 500 ms\n");
  EXPECT_EQ(summary_text({.steps = 1, .seconds = 3725, .skipped = 1, .interrupted = true}, Style()),
            "stopped 1 step in 1:02:05 · 1 update skipped\n");
  EXPECT_EQ(summary_text({.seconds = 1, .memory_predicted_gib = 2}, Style()),
            "done    0 steps in 1 s\n        memory predicted 2.00 GiB\n");
  EXPECT_EQ(summary_text({.seconds = 1, .memory_measured_gib = 2}, Style()),
            "done    0 steps in 1 s\n        memory measured 2.00 GiB\n");
}

TEST(SummaryText, FitsATerminalButKeepsPathsAndCommandsWhole) {
  EXPECT_EQ(summary_text({.seconds = 1,
                          .shares = {{"forward", 0.31}, {"backward", 0.52}, {"comm exposed", 0.1}},
                          .saved = "a folder/with a long name",
                          .next = {"a command of many words"}},
                         Style(), 30),
            "done    0 steps in 1 s\n"
            "        where a step goes:\n"
            "        forward 31% ·\n"
            "        backward 52% ·\n"
            "        comm exposed 10%\n"
            "saved   a folder/with a long name\n"
            "next    a command of many words\n");
}

TEST(SummaryText, LabelsAreDim) {
  EXPECT_EQ(summary_text({.seconds = 1, .next = {"a", "b"}}, Style(true)),
            "\x1B[2mdone\x1B[0m    0 steps in 1 s\n"
            "\x1B[2mnext\x1B[0m    a\n"
            "        b\n");
}

TEST(SummaryJson, IsOneObject) {
  EXPECT_EQ(summary_json(full_summary()),
            R"({"done":{"steps":1400,"seconds":14.25,"interrupted":false,"skipped":2,"first_loss":6.2391,)"
            R"("last_loss":2.3124,"median_tokens_per_sec":59012,"slowest_rank":3,"slowest_rank_excess":0.021,)"
            R"("shares":{"forward":0.31,"backward":0.52,"comm exposed":0.1},"memory_predicted_gib":0.0400390625,)"
            R"("memory_measured_gib":0.0419921875,"saved":"runs/x/checkpoints/step-400"}})");
  EXPECT_EQ(summary_json({.first_loss = 1, .last_loss = std::nan(""), .interrupted = true}),
            R"({"done":{"steps":0,"seconds":0,"interrupted":true,"skipped":0,"first_loss":1,"last_loss":null}})");
}

TEST(LabelledLine, KeepsASpaceBehindALongLabel) {
  EXPECT_EQ(labelled_line("trireme", "0.1.0", Style()), "trireme 0.1.0\n");
  EXPECT_EQ(wrapped_line("model", "tiny · 4 layers · hidden 128", Style(), 21),
            "model   tiny ·\n        4 layers ·\n        hidden 128\n");
  EXPECT_EQ(wrapped_line("model", "a-word-that-is-too-long", Style(), 10), "model   a-word-that-is-too-long\n");
  EXPECT_EQ(wrapped_line("model", "", Style(), 10), labelled_line("model", "", Style()));
  EXPECT_EQ(labelled_line("precision", "bf16", Style()), "precision bf16\n");
}

TEST(SlowestRank, IsComparedWithTheMedian) {
  EXPECT_EQ(slowest_rank({1, 3, 2}).rank, 1);
  EXPECT_DOUBLE_EQ(slowest_rank({1, 3, 2}).excess, 0.5);
  EXPECT_DOUBLE_EQ(slowest_rank({1, 3}).excess, 0.5);
  EXPECT_DOUBLE_EQ(slowest_rank({1, 1, 3, 3}).excess, 0.5);
  EXPECT_DOUBLE_EQ(slowest_rank({5}).excess, 0);
}

}  // namespace
}  // namespace trireme::metrics
