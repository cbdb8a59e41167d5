#include "trireme/config/schema/lr_schedule.hpp"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;

/// The schedule of these lines of [lr_scheduler], with optimizer.lr = 1.
LrSchedule schedule_of(std::int64_t steps, const std::string& lines) {
  const config::LoadedConfig loaded =
      load(text("optimizer.lr = 1\ntraining.steps = ", steps, "\n[lr_scheduler]\n", lines));
  EXPECT_TRUE(loaded.violations.empty()) << lines;
  return LrSchedule(lr_options(loaded.config));
}

TEST(LrSchedule, WarmsUpAndDecays) {
  const LrSchedule lr = schedule_of(20, "warmup_steps = 10\nmin_lr = 0.1");
  EXPECT_DOUBLE_EQ(lr(1), 0.1);
  EXPECT_DOUBLE_EQ(lr(10), 1);
  EXPECT_DOUBLE_EQ(lr(11), 1);  // no step of decay is done
  EXPECT_DOUBLE_EQ(lr(16), 0.55);
  EXPECT_DOUBLE_EQ(lr(21), 0.1);
  EXPECT_DOUBLE_EQ(lr(99), 0.1);
  for (std::int64_t step = 12; step <= 20; ++step) EXPECT_LT(lr(step), lr(step - 1));
}

TEST(LrSchedule, TheLastStepTrains) {
  for (const std::string& decay : config::lr_decay_words()) {
    EXPECT_EQ(schedule_of(1, "decay = \"" + decay + "\"")(1), 1) << decay;
    for (const std::int64_t steps : {2, 3, 10, 1000})
      EXPECT_GT(schedule_of(steps, "decay = \"" + decay + "\"")(steps), 0) << decay << " " << steps;
  }
  EXPECT_EQ(schedule_of(1, "warmup_steps = 1")(1), 1);
}

TEST(LrSchedule, ShapesAtAQuarter) {
  const auto at_quarter = [](const std::string& decay) { return schedule_of(8, "decay = \"" + decay + "\"")(3); };
  EXPECT_DOUBLE_EQ(at_quarter("linear"), 0.75);
  EXPECT_DOUBLE_EQ(at_quarter("cosine"), (1 + std::sqrt(0.5)) / 2);
  EXPECT_DOUBLE_EQ(at_quarter("1-sqrt"), 0.5);
  EXPECT_DOUBLE_EQ(at_quarter("exponential"), 2 * std::pow(0.5, 0.25) - 1);
  EXPECT_DOUBLE_EQ(at_quarter("constant"), 1);
}

TEST(LrSchedule, AnInverseSquareRootHasATimeScale) {
  const LrSchedule after_warmup = schedule_of(100, "decay = \"inverse-sqrt\"\nwarmup_steps = 16");
  EXPECT_DOUBLE_EQ(after_warmup(17), 1);
  EXPECT_DOUBLE_EQ(after_warmup(65), 0.5);
  const LrSchedule scaled = schedule_of(100, "decay = \"inverse-sqrt\"\ndecay_steps = 10\nmin_lr = 0.6");
  EXPECT_DOUBLE_EQ(scaled(1), 1);
  EXPECT_DOUBLE_EQ(scaled(11), std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(scaled(100), 0.6);
}

TEST(LrSchedule, AShortDecayLeavesAPlateau) {
  const LrSchedule wsd = schedule_of(100, "warmup_steps = 10\ndecay_steps = 20\ndecay = \"1-sqrt\"");
  EXPECT_DOUBLE_EQ(wsd(10), 1);
  EXPECT_DOUBLE_EQ(wsd(81), 1);
  EXPECT_LT(wsd(82), 1);
  EXPECT_DOUBLE_EQ(wsd(86), 0.5);
  EXPECT_DOUBLE_EQ(wsd(101), 0);
}

TEST(LrSchedule, TheDecayStandsWhereItIsPut) {
  const auto same = [](const std::string& one, const std::string& other) {
    const LrSchedule a = schedule_of(40, "warmup_steps = 5\n" + one), b = schedule_of(40, "warmup_steps = 5\n" + other);
    for (std::int64_t step = 1; step <= 45; ++step) EXPECT_EQ(a(step), b(step)) << one << " " << step;
  };
  same("decay_start_step = 10\ndecay_end_step = 30", "decay_start_step = 10\ndecay_steps = 20");
  same("decay_start_step = 10\ndecay_end_step = 30", "decay_end_step = 30\ndecay_steps = 20");
  same("decay_start_step = 20", "decay_steps = 20");
  same("decay_end_step = 40", "");
  const LrSchedule early = schedule_of(40, "decay_start_step = 10\ndecay_end_step = 20\nmin_lr = 0.25");
  EXPECT_EQ(early(11), 1);
  EXPECT_LT(early(12), 1);
  EXPECT_EQ(early(21), 0.25);
  EXPECT_EQ(early(40), 0.25);
}

TEST(LrSchedule, AWarmUpMayStartLaterAndHigher) {
  const LrSchedule late = schedule_of(40, "warmup_steps = 4\nstart_lr = 0.2\nstart_delay = 1\ndecay = \"constant\"");
  EXPECT_DOUBLE_EQ(late(1), 0.2);
  EXPECT_DOUBLE_EQ(late(3), 0.6);
  EXPECT_DOUBLE_EQ(late(5), 1);
  const LrSchedule log = schedule_of(40, "warmup_steps = 8\nwarmup_shape = \"log\"\ndecay = \"constant\"");
  EXPECT_DOUBLE_EQ(log(3), std::log(4) / std::log(8));
  EXPECT_DOUBLE_EQ(log(7), 1);
  EXPECT_DOUBLE_EQ(log(8), 1);
}

/// However long the delay, the peak is reached and the decay begins behind it.
TEST(LrSchedule, ADelayShiftsTheDecay) {
  for (const int delay : {0, 1, 2, 3, 7})
    for (const int warmup : {0, 1, 4}) {
      const LrSchedule lr =
          schedule_of(40, "start_lr = 0.1\ndecay = \"linear\"\nwarmup_steps = " + std::to_string(warmup) +
                              "\nstart_delay = " + std::to_string(delay));
      const std::string which = std::to_string(warmup) + " after " + std::to_string(delay);
      for (int step = 1; step <= delay; ++step) EXPECT_DOUBLE_EQ(lr(step), 0.1) << which;
      const int peak = std::max(1, warmup + delay + (warmup == 0 && delay > 0 ? 1 : 0));
      EXPECT_DOUBLE_EQ(lr(peak), 1) << which;
      for (int step = 2; step <= 40; ++step) {
        if (step <= peak) {
          EXPECT_GE(lr(step), lr(step - 1)) << which << " step " << step;
        } else if (step > peak + 1) {
          EXPECT_LT(lr(step), lr(step - 1)) << which << " step " << step;
        }
      }
      EXPECT_DOUBLE_EQ(lr(41), 0) << which;
    }
}

TEST(LrSchedule, PhasesNeedNotBeWholeSteps) {
  const LrSchedule lr = schedule_of(10, "warmup_steps = 2.5\ndecay_end_step = 7.5\ndecay = \"linear\"");
  EXPECT_DOUBLE_EQ(lr(2), 0.8);
  EXPECT_DOUBLE_EQ(lr(3), 1);
  EXPECT_DOUBLE_EQ(lr(6), 0.5);
  EXPECT_DOUBLE_EQ(lr(9), 0);
}

TEST(LrSchedule, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(message_of<ConfigError>([] { LrSchedule({.warmup_steps = -8}); }), HasSubstr("none may be negative"));
}

TEST(LrSchedule, AShortTrialOfALongRun) {
  const LrSchedule cut = schedule_of(10, "warmup_steps = 8\ndecay_steps = 4\ndecay = \"linear\"");
  EXPECT_EQ(cut(9), 1);
  EXPECT_EQ(cut(10), 0.75);
  EXPECT_EQ(schedule_of(4, "warmup_steps = 20")(4), 0.2);
}

}  // namespace
}  // namespace trireme
