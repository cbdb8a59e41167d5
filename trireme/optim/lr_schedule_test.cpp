#include "trireme/optim/lr_schedule.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;

TEST(LrSchedule, WarmsUpAndDecaysToItsLeast) {
  const LrSchedule lr({.lr = 1, .min_lr = 0.1, .steps = 20, .warmup_steps = 10});
  EXPECT_DOUBLE_EQ(lr(1), 0.1);
  EXPECT_DOUBLE_EQ(lr(10), 1);
  EXPECT_DOUBLE_EQ(lr(15), 0.55);
  EXPECT_DOUBLE_EQ(lr(20), 0.1);
  EXPECT_DOUBLE_EQ(lr(99), 0.1);
  for (std::int64_t step = 11; step <= 20; ++step) EXPECT_LT(lr(step), lr(step - 1));
}

TEST(LrSchedule, ShapesAtAQuarter) {
  const auto at_quarter = [](const std::string& decay) {
    return LrSchedule({.lr = 1, .steps = 8, .decay = parse_lr_decay(decay)})(2);
  };
  EXPECT_DOUBLE_EQ(at_quarter("linear"), 0.75);
  EXPECT_DOUBLE_EQ(at_quarter("cosine"), (1 + std::sqrt(0.5)) / 2);
  EXPECT_DOUBLE_EQ(at_quarter("1-sqrt"), 0.5);
  EXPECT_DOUBLE_EQ(at_quarter("constant"), 1);
}

TEST(LrSchedule, AShortDecayLeavesAPlateau) {
  const LrSchedule wsd(
      {.lr = 2, .steps = 100, .warmup_steps = 10, .decay_steps = 20, .decay = LrDecay::one_minus_sqrt});
  EXPECT_DOUBLE_EQ(wsd(10), 2);
  EXPECT_DOUBLE_EQ(wsd(80), 2);
  EXPECT_LT(wsd(81), 2);
  EXPECT_DOUBLE_EQ(wsd(85), 1);
  EXPECT_DOUBLE_EQ(wsd(100), 0);
}

TEST(LrSchedule, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(message_of<ConfigError>([] { LrSchedule({.steps = 10, .warmup_steps = -8}); }),
              HasSubstr("none may be negative"));
  EXPECT_THAT(message_of<ConfigError>([] { parse_lr_decay("steps"); }), HasSubstr("\"steps\": constant, linear"));
}

TEST(LrSchedule, AShortTrialOfALongRun) {
  const LrSchedule cut({.lr = 1, .steps = 10, .warmup_steps = 8, .decay_steps = 4, .decay = LrDecay::linear});
  EXPECT_EQ(cut(8), 1);
  EXPECT_EQ(cut(9), 0.75);
  EXPECT_EQ(cut(10), 0.5);
  EXPECT_EQ(cut(11), 0.5);
  const LrSchedule warming({.lr = 1, .steps = 4, .warmup_steps = 20});
  EXPECT_EQ(warming(4), 0.2);
}

}  // namespace
}  // namespace trireme
