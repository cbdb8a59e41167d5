#include "trireme/data/sampling/sampler.hpp"

#include <map>
#include <set>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/testing/layout_helpers.hpp"
#include "trireme/testing/memory_tokens.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

SamplingPlan plan_of(std::vector<SamplingStage> stages, std::int64_t global_batch_size = 4, std::uint64_t seed = 42) {
  return {.seed = seed, .global_batch_size = global_batch_size, .stages = std::move(stages)};
}

SamplingPlan one_source(std::int64_t num_windows, std::int64_t seq_len, std::int64_t global_batch_size) {
  return plan_of({{.seq_len = seq_len, .sources = {{counted_tokens(num_windows * seq_len + 1)}}}}, global_batch_size);
}

std::vector<Sample> whole_step(const Sampler& sampler, std::int64_t step) {
  return sampler.samples(step, {0, sampler.global_batch_size()});
}

std::vector<std::int64_t> windows_of(const std::vector<Sample>& samples) {
  std::vector<std::int64_t> windows;
  for (const Sample& sample : samples) windows.push_back(sample.window);
  return windows;
}

/// Requires that all windows of an epoch occur, each once.
void require_whole_epochs(const std::map<std::tuple<std::size_t, std::int64_t>, std::vector<std::int64_t>>& taken,
                          std::int64_t num_windows) {
  std::map<std::size_t, std::int64_t> last_epoch;
  for (const auto& [key, windows] : taken) last_epoch[std::get<0>(key)] = std::get<1>(key);
  for (const auto& [key, windows] : taken) {
    RC_ASSERT(std::set(windows.begin(), windows.end()).size() == windows.size());
    if (std::get<1>(key) < last_epoch[std::get<0>(key)])
      RC_ASSERT(static_cast<std::int64_t>(windows.size()) == num_windows);
  }
}

// Checkpoints depend on these values.
TEST(Sampler, GoldenValues) {
  const Sampler sampler(one_source(10, 8, 5));
  EXPECT_EQ(windows_of(whole_step(sampler, 1)), (std::vector<std::int64_t>{1, 0, 4, 2, 7}));
  EXPECT_EQ(windows_of(whole_step(sampler, 2)), (std::vector<std::int64_t>{3, 6, 9, 8, 5}));
  EXPECT_EQ(windows_of(whole_step(sampler, 3)), (std::vector<std::int64_t>{3, 7, 5, 0, 2}));
  EXPECT_EQ(whole_step(sampler, 3)[1].first_token, 56);
  EXPECT_EQ(whole_step(sampler, 3)[1].epoch, 1);
  EXPECT_EQ(whole_step(sampler, 3)[1].row, 1);
}

RC_GTEST_PROP(SamplerProperty, AnyRanksKillsAndBatchSizesTakeEverySampleOfAnEpochOnce, ()) {
  const std::int64_t seq_len = pick(1, 5), num_windows = pick(1, 60);
  const int num_sources = pick(1, 3);
  SamplingStage stage{.seq_len = seq_len, .sources = {}};
  for (int i = 0; i < num_sources; ++i)
    stage.sources.push_back(
        {counted_tokens(num_windows * seq_len + 1 + pick(0, static_cast<int>(seq_len) - 1), text("source ", i)),
         static_cast<double>(pick(1, 4))});

  // By source and epoch, in the order taken; and by index of the draw in the run.
  std::map<std::tuple<std::size_t, std::int64_t>, std::vector<std::int64_t>> taken;
  std::vector<Sample> in_order;
  DataPosition position;
  for (int lives = pick(1, 5); lives > 0; --lives) {
    const std::int64_t mbs = pick(1, 3), dp = pick(1, 8), gbs = mbs * dp * pick(1, 4);
    const Sampler sampler(plan_of({stage}, gbs), position);
    std::int64_t step = position.step;
    for (int steps = pick(0, 6); steps > 0; --steps) {
      ++step;
      std::vector<Sample> rows(static_cast<std::size_t>(gbs));
      for (std::int64_t rank = 0; rank < dp; ++rank) {
        const BatchSplit split(gbs, mbs, dp, rank);
        for (std::int64_t m = 0; m < split.num_microbatches(); ++m)
          for (const Sample& sample : sampler.samples(step, split.rows(m))) {
            RC_ASSERT(rows.at(static_cast<std::size_t>(sample.row)).tokens == nullptr);
            rows[static_cast<std::size_t>(sample.row)] = sample;
          }
      }
      for (const Sample& sample : rows) {
        RC_ASSERT(sample.tokens != nullptr);
        RC_ASSERT(sample.first_token == sample.window * seq_len);
        taken[{sample.source, sample.epoch}].push_back(sample.window);
        in_order.push_back(sample);
      }
    }
    // Killed in the middle of the next step: its samples were drawn but not counted.
    sampler.samples(step + 1, {0, gbs});
    position = sampler.position(step);
    RC_ASSERT(position.step == 0 || position.consumed == std::vector{static_cast<std::int64_t>(in_order.size())});
  }
  require_whole_epochs(taken, num_windows);

  // The same as one step over all of it on one rank: the order is a function of the seed alone.
  if (in_order.empty()) return;
  const Sampler at_once(plan_of({stage}, static_cast<std::int64_t>(in_order.size())));
  std::vector<Sample> expected = whole_step(at_once, 1);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i].row = in_order[i].row;
    RC_ASSERT(in_order[i] == expected[i]);
  }
}

RC_GTEST_PROP(SamplerProperty, AStepHasTheSameMicrobatchesForEveryDp, ()) {
  const std::int64_t mbs = pick(1, 4), microbatches = pick(1, 8), gbs = mbs * microbatches;
  const Sampler sampler(one_source(50, 3, gbs));
  const std::int64_t step = pick(1, 1000);
  const BatchSplit alone(gbs, mbs);
  for (std::int64_t rank = 0; rank < microbatches; ++rank) {
    const BatchSplit other(gbs, mbs, microbatches, rank);
    RC_ASSERT(other.num_microbatches() == 1);
    RC_ASSERT(sampler.samples(step, other.rows(0)) == sampler.samples(step, alone.rows(rank)));
  }
}

TEST(Sampler, StagesGoOnWhereASourceStopped) {
  const SharedTokens a = counted_tokens(101, "a"), b = counted_tokens(101, "b");
  const Sampler sampler(plan_of({{.start_step = 1, .seq_len = 10, .sources = {{a}}},
                                 {.start_step = 3, .seq_len = 10, .sources = {{b}, {a, 3}}},
                                 {.start_step = 5, .seq_len = 5, .sources = {{a}}},
                                 {.start_step = 8, .seq_len = 10, .sources = {{a}}}}));
  std::map<std::tuple<std::string, std::int64_t>, std::vector<std::int64_t>> taken;
  std::map<std::int64_t, std::vector<std::int64_t>> short_windows;
  for (std::int64_t step = 1; step <= 12; ++step) {
    EXPECT_EQ(sampler.seq_len(step), 5 <= step && step < 8 ? 5 : 10);
    for (const Sample& sample : whole_step(sampler, step)) {
      EXPECT_EQ(sample.source, sample.tokens->name() == "a" ? 0U : 1U);
      if (sampler.seq_len(step) == 5)
        short_windows[sample.epoch].push_back(sample.window);
      else
        taken[{sample.tokens->name(), sample.epoch}].push_back(sample.window);
    }
  }
  // 8 + about 6 + 20 windows, with ten windows in a: three epochs and part of the fourth, without duplicates.
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto& windows = taken[{"a", epoch}];
    EXPECT_EQ(std::set(windows.begin(), windows.end()).size(), 10U) << epoch;
    EXPECT_EQ(windows.size(), 10U);
  }
  EXPECT_EQ(short_windows[0].size(), 12U);
  EXPECT_EQ(std::set(short_windows[0].begin(), short_windows[0].end()).size(), 12U);
  EXPECT_EQ(sampler.position(9), (DataPosition{9, {8, 8, 12, 8}}));
  EXPECT_EQ(sampler.windows_per_epoch(3, 1), 10);
  EXPECT_EQ(sampler.windows_per_epoch(1, 1), 0);
}

RC_GTEST_PROP(SamplerProperty, GoingOnFromAnyPositionEqualsNeverHavingStopped, ()) {
  const SharedTokens a = counted_tokens(301, "a"), b = counted_tokens(77, "b");
  const std::int64_t second = pick(2, 10), third = second + pick(1, 10);
  const SamplingPlan plan = plan_of({{.start_step = 1, .seq_len = 4, .sources = {{a, 2}, {b}}},
                                     {.start_step = second, .seq_len = pick(4, 5), .sources = {{b}, {a}}},
                                     {.start_step = third, .seq_len = 4, .sources = {{a, 0.123}, {b, 0.2}}}},
                                    pick(1, 9));
  const Sampler whole(plan);
  const std::int64_t stop = pick(0, 25), step = stop + pick(1, 25);
  const Sampler resumed(plan, whole.position(stop));
  RC_ASSERT(whole_step(resumed, step) == whole_step(whole, step));
  RC_ASSERT(resumed.seq_len(step) == whole.seq_len(step));
  RC_ASSERT(resumed.position(step) == whole.position(step));
  RC_ASSERT(resumed.position(stop) == whole.position(stop));
}

TEST(Sampler, AChangeOfBatchSizeInAStageLosesNothing) {
  const SharedTokens a = counted_tokens(1001, "a"), b = counted_tokens(1001, "b");
  const std::vector<SamplingStage> stages{{.start_step = 1, .seq_len = 10, .sources = {{a}, {b}}},
                                          {.start_step = 8, .seq_len = 10, .sources = {{b}}}};
  std::map<std::tuple<std::string, std::int64_t>, std::vector<std::int64_t>> taken;
  DataPosition position;
  for (const auto& [gbs, until] : std::map<std::int64_t, std::int64_t>{{4, 3}, {6, 6}, {10, 9}, {20, 14}}) {
    const Sampler sampler(plan_of(stages, gbs), position);
    for (std::int64_t step = position.step + 1; step <= until; ++step)
      for (const Sample& sample : whole_step(sampler, step))
        taken[{sample.tokens->name(), sample.epoch}].push_back(sample.window);
    position = sampler.position(until);
  }
  EXPECT_EQ(position, (DataPosition{14, {3 * 4 + 3 * 6 + 10, 2 * 10 + 5 * 20}}));
  const auto& windows = taken[{"b", 0}];  // 20 of stage 1 and 80 of stage 2
  EXPECT_EQ(windows.size(), 100U);
  EXPECT_EQ(std::set(windows.begin(), windows.end()).size(), 100U);
  EXPECT_EQ((taken[{"b", 1}].size()), 40U);
}

TEST(Sampler, FarAwayStepsAreThere) {
  const Sampler sampler(one_source(1000, 4, 8));
  // Step 125 k + 1 begins epoch k.
  const std::int64_t step = 125LL * 1'000'000'000 + 1;
  const std::vector<Sample> samples = whole_step(sampler, step);
  EXPECT_EQ(samples.front().epoch, 1'000'000'000);
  EXPECT_EQ(sampler.samples(step - 1, {7, 8}).front().epoch, 999'999'999);
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 125; ++i)
    for (const Sample& sample : whole_step(sampler, step + i)) seen.insert(sample.window);
  EXPECT_EQ(seen.size(), 1000U);
}

TEST(Sampler, SeedSourceAndEpochGiveOtherOrders) {
  const auto order = [](std::uint64_t seed, std::size_t epoch) {
    SamplingPlan plan = one_source(100, 2, 100);
    plan.seed = seed;
    return windows_of(whole_step(Sampler(plan), static_cast<std::int64_t>(epoch) + 1));
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
}

TEST(Sampler, WrongPlansAreNamed) {
  const auto message = [](const SamplingPlan& plan, const DataPosition& from = {}) {
    return message_of<ConfigError>([&] { Sampler(plan, from); });
  };
  const SharedTokens a = counted_tokens(100, "data/a.ds");
  const SamplingStage good{.seq_len = 10, .sources = {{a}}};
  EXPECT_THAT(message(plan_of({})), HasSubstr("there is no data"));
  EXPECT_THAT(message(plan_of({{.seq_len = 10, .sources = {}}})), HasSubstr("data stage 1 has no sources"));
  EXPECT_THAT(message(plan_of({{.seq_len = 0, .sources = {{a}}}})), HasSubstr("data stage 1: seq_len = 0"));
  for (const double weight : {0.0, -1.0, 0.0 / 0.0, 1.0 / 0.0})
    EXPECT_THAT(message(plan_of({{.seq_len = 10, .sources = {{a, weight}}}})),
                HasSubstr("of data/a.ds: must be a number above 0"));
  EXPECT_THAT(message(plan_of({{.seq_len = 10, .sources = {{a}, {a}}}})), HasSubstr("names data/a.ds more than once"));
  EXPECT_THAT(message(plan_of({{.start_step = 2, .seq_len = 10, .sources = {{a}}}})),
              HasSubstr("data stage 1 starts at step 2"));
  EXPECT_THAT(message(plan_of({good,
                               {.start_step = 5, .seq_len = 10, .sources = {{a}}},
                               {.start_step = 5, .seq_len = 9, .sources = {{a}}}})),
              HasSubstr("data stage 3 starts at step 5, stage 2 at step 5"));
  EXPECT_THAT(message(plan_of({good}, 0)), HasSubstr("training.global_batch_size = 0"));
  SamplingPlan fraction = plan_of({good});
  fraction.validation_fraction = 1;
  EXPECT_THAT(message(fraction), HasSubstr("validation fraction = 1"));
  EXPECT_THAT(message_of<DataError>([&] { Sampler(plan_of({{.seq_len = 1024, .sources = {{a}}}})); }),
              HasSubstr("data/a.ds has 100 tokens, a sample needs 1,025 (seq_len + 1)\n  fix: seq_len below 100"));
}

TEST(Sampler, WrongStepsAndPositionsAreNamed) {
  const SamplingStage stage{.seq_len = 10, .sources = {{counted_tokens(100)}}};
  SamplingStage later = stage;
  later.start_step = 6;
  const SamplingPlan plan = plan_of({stage, later});
  EXPECT_THROW(Sampler(plan).samples(0, {0, 1}), ConfigError);
  EXPECT_THROW(Sampler(plan, {5, {20}}).samples(5, {0, 1}), ConfigError);
  EXPECT_THROW(Sampler(plan).samples(1, {0, 5}), InternalError);
  EXPECT_THAT(message_of<ConfigError>([&] { Sampler(plan).samples(INT64_MAX / 2, {0, 1}); }),
              HasSubstr("2^60 samples"));
  const auto message = [&](const DataPosition& from) {
    return message_of<CheckpointError>([&] { Sampler(plan, from); });
  };
  EXPECT_THAT(message({6, {20}}), HasSubstr("has samples of 1 data stages; by the config 2 have begun"));
  EXPECT_THAT(message({5, {20, 4}}), HasSubstr("has samples of 2 data stages; by the config 1 have begun"));
  EXPECT_THAT(message({5, {-1}}), HasSubstr("consumed -1"));
  EXPECT_THAT(message({-1, {}}), HasSubstr("step is -1"));
}

TEST(BatchSplit, WrongNumbersAreNamed) {
  EXPECT_THAT(message_of<ConfigError>([] { BatchSplit(8, 2, 2, 2); }), HasSubstr("dp rank 2: dp = 2 has ranks 0 to 1"));
  EXPECT_THAT(message_of<ConfigError>([] { BatchSplit(8, 2, 2, -1); }), HasSubstr("dp rank -1"));
  EXPECT_THAT(message_of<ConfigError>([] { BatchSplit(10, 2, 2); }),
              HasSubstr("global_batch_size = 10 is not micro_batch_size 2 x dp 2 x a whole number"));
  EXPECT_THROW(BatchSplit(10, 4), ConfigError);
  EXPECT_THROW(BatchSplit(0, 1), ConfigError);
  EXPECT_THROW(BatchSplit(1, 0), ConfigError);
  EXPECT_THROW(BatchSplit(8, 2, 2).rows(2), InternalError);
  EXPECT_EQ(BatchSplit(16, 2, 4, 1).rows(1), (Range{10, 12}));
}

}  // namespace
}  // namespace trireme::data
