#include <array>
#include <string>

#include <gtest/gtest.h>

#include "trireme/config/rules/rules.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

TEST(BatchRules, OneAtATime) {
  const Told rows[] = {
      {"training.global_batch_size = 100\ntraining.micro_batch_size = 4\nparallelism.dp = 8",
       "global_batch_size = 100 ≠ micro_batch_size 4 × grad_accum × dp 8\n  --> run.toml:2  nearest: 96 (grad_accum 3) "
       "or 128 (grad_accum 4)"},
      {"training.global_batch_size = 100\ntraining.grad_accum = 3\nparallelism.dp = 8",
       "global_batch_size = 100 ≠ micro_batch_size × grad_accum 3 × dp 8\n  --> run.toml:2  nearest: 96 "
       "(micro_batch_size 4) or 120 (micro_batch_size 5)"},
      {"training.global_batch_size = 4\nparallelism.dp = 8",
       "global_batch_size = 4 ≠ micro_batch_size × grad_accum × dp 8\n  --> run.toml:2  at least 8 (grad_accum 1)"},
      {"training.global_batch_size = 4\ntraining.micro_batch_size = 4\ntraining.grad_accum = 2\nparallelism.dp = 8",
       "global_batch_size = 4 ≠ micro_batch_size 4 × grad_accum 2 × dp 8\n  --> run.toml:2  64 by the right side: "
       "leave "
       "one of the three out"},
      {"training.global_batch_size = 12\ntraining.micro_batch_size = 4\ntraining.grad_accum = 2",
       "global_batch_size = 12 ≠ micro_batch_size 4 × grad_accum 2 × dp\n  --> run.toml:2  8 by the right side: leave "
       "one of the three out"},
      {"training.grad_accum = 1000000\ntraining.micro_batch_size = 1000000\nparallelism.dp = 1000000",
       "micro_batch_size 1000000 × grad_accum 1000000 × dp 1000000 is more than 1,000,000,000 sequences a step\n"
       "  --> run.toml:2"},
      {"training.seq_len = 130\nparallelism.cp = 4",
       "seq_len = 130 is not divisible by 2 × cp = 8\n  --> run.toml:2  the zig-zag split cuts a sequence into 2 × cp "
       "parts\n  fix: nearest: 128 or 136"},
      {"training.seq_len = 6\nparallelism.cp = 4",
       "seq_len = 6 is not divisible by 2 × cp = 8\n  --> run.toml:2  the zig-zag split cuts a sequence into 2 × cp "
       "parts\n  fix: at least 8"},
      {"training.seq_len = 130\nparallelism.cp = 4\nparallelism.cp_method = 'ring-contiguous'",
       "seq_len = 130 is not divisible by cp = 4\n  --> run.toml:2  each cp rank takes one part\n  fix: nearest: 128 "
       "or "
       "132"},
      {"training.seq_len = 127\nparallelism.tp = 2\nparallelism.sequence_parallel = true",
       "seq_len = 127 is not divisible by parallelism.tp = 2\n  --> run.toml:2  sequence parallel cuts it over tp\n  "
       "fix: "
       "change seq_len, or set sequence_parallel = false"},
      {"training.seq_len = 8\nparallelism.tp = 4\nparallelism.cp = 4\nparallelism.sequence_parallel = true",
       "seq_len = 8 / cp 4 is not divisible by parallelism.tp = 4\n  --> run.toml:2  sequence parallel cuts it over "
       "tp\n"
       "  fix: change seq_len, or set sequence_parallel = false"},
      {"parallelism.tp = 2\nparallelism.sequence_parallel = true\n[[data]]\nseq_len = 127\nsources = [{path='a'}]",
       "seq_len = 127 is not divisible by parallelism.tp = 2\n  --> run.toml:5  sequence parallel cuts it over tp\n  "
       "fix: "
       "change seq_len, or set sequence_parallel = false"},
      {"parallelism.cp = 8\nparallelism.cp_method = 'ulysses'",
       "num_attention_heads = 4 is not divisible by tp 1 × cp 8\n  --> run.toml:2  ulysses cuts heads over cp too\n  "
       "fix: "
       "set cp_method = \"ring\""},
      {"parallelism.cp = 2\nmodel.attention_dropout = 0.1",
       "attention_dropout = 0.1 with cp = 2\n  --> run.toml:2  attention over a ring cannot drop weights\n  fix: set "
       "model.attention_dropout = 0"},
  };
  for (const Told& row : rows) EXPECT_EQ(error_of(kTiny + row.toml), row.message) << row.toml;
}

TEST(BatchRules, WhatIsAllowed) {
  for (const char* toml : {"training.seq_len = 127\nparallelism.tp = 2\nparallelism.sequence_parallel = false",
                           "training.seq_len = 127\nparallelism.tp = 2",
                           "training.seq_len = 132\nparallelism.cp = 4\nparallelism.cp_method = 'ring-contiguous'",
                           "training.seq_len = 127",
                           // All three, and dp unset: the number of ranks follows.
                           "training.global_batch_size = 256\ntraining.micro_batch_size = 4\ntraining.grad_accum = 8"})
    EXPECT_EQ(error_of(std::string(kTiny) + toml), "no error") << toml;
}

/// As with DeepSpeed's three numbers: the number of started ranks must match.
TEST(BatchRules, AllThreeMustFitTheRanksThatWereStarted) {
  const std::string toml =
      std::string(kTiny) + "training.global_batch_size = 256\ntraining.micro_batch_size = 4\ntraining.grad_accum = 8";
  EXPECT_EQ(error_of(toml, {}, {.ranks = 8}), "no error");
  EXPECT_EQ(
      error_of(toml, {}, {.ranks = 4}),
      "global_batch_size = 256 ≠ micro_batch_size 4 × grad_accum 8 × dp 4\n  --> run.toml:2  128 by the right side: "
      "leave one of the three out");
}

/// The suggested nearest values are themselves valid, and lie on both sides of the given one.
TEST(BatchRules, TheNearestBatchSizesWork) {
  for (const auto& [dp, micro, batch] :
       {std::array{1, 4, 7}, {8, 4, 100}, {8, 4, 33}, {3, 5, 44}, {2, 1, 399}, {12, 12, 145}}) {
    const auto told = [&](int size) {
      return error_of("", {"--model.preset=tiny-llama", text("--parallelism.dp=", dp),
                           text("--training.micro_batch_size=", micro), text("--training.global_batch_size=", size)});
    };
    const std::string message = told(batch);
    const std::size_t nearest = message.find("nearest: "), other = message.find(" or ");
    ASSERT_NE(nearest, std::string::npos) << message;
    const int below = std::stoi(message.substr(nearest + 9)), above = std::stoi(message.substr(other + 4));
    EXPECT_TRUE(below < batch && batch < above) << message;
    EXPECT_EQ(above - below, dp * micro);
    EXPECT_EQ(told(below), "no error");
    EXPECT_EQ(told(above), "no error");
  }
}

}  // namespace
}  // namespace trireme::config
