#include "trireme/metrics/z_score.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::metrics {
namespace {

TEST(ZScore, WaitsForEightValues) {
  ZScore scores;
  for (int i = 0; i < 7; ++i) EXPECT_EQ(scores.add(i), std::nullopt) << i;
  // 0 ... 7: mean 3.5, variance 5.25.
  const auto eighth = scores.add(7);
  ASSERT_TRUE(eighth.has_value());
  EXPECT_NEAR(*eighth, 3.5 / std::sqrt(5.25), 1e-15);
}

TEST(ZScore, HasASign) {
  ZScore scores;
  for (int i = 0; i < 7; ++i) scores.add(i);
  const auto low = scores.add(-1);  // mean 2.5, variance 5.25
  ASSERT_TRUE(low.has_value());
  EXPECT_NEAR(*low, -3.5 / std::sqrt(5.25), 1e-15);
}

TEST(ZScore, EqualValuesHaveNone) {
  ZScore scores;
  for (int i = 0; i < 200; ++i) EXPECT_EQ(scores.add(0.1), std::nullopt) << i;
  // A single outlier among n values has the score sqrt(n - 1).
  const auto spike = scores.add(1e3);
  ASSERT_TRUE(spike.has_value());
  EXPECT_NEAR(*spike, std::sqrt(127.0), 1e-9);
}

TEST(ZScore, ForgetsWhatIsOlderThanTheWindow) {
  ZScore scores;
  scores.add(1e6);
  for (int i = 0; i < 127; ++i) scores.add(i % 2);
  EXPECT_EQ(scores.values().size(), 128U);
  EXPECT_LT(std::abs(*scores.values().begin() - 1e6), 1e-9);
  const auto fresh = scores.add(1);  // pushes the outlier out: 64 zeros and 64 ones are left
  ASSERT_TRUE(fresh.has_value());
  EXPECT_NEAR(*fresh, 1.0, 1e-12);
  EXPECT_EQ(scores.values().size(), 128U);
}

TEST(ZScore, WhatIsNotFiniteStaysOut) {
  ZScore scores;
  for (int i = 0; i < 7; ++i) scores.add(i);
  EXPECT_EQ(scores.add(std::nan("")), std::nullopt);
  EXPECT_EQ(scores.add(std::numeric_limits<double>::infinity()), std::nullopt);
  EXPECT_EQ(scores.values().size(), 7U);
  EXPECT_TRUE(scores.add(7).has_value());
}

TEST(ZScore, NumbersThatOverflowHaveNone) {
  ZScore scores;
  for (int i = 0; i < 7; ++i) scores.add(i);
  EXPECT_EQ(scores.add(1e300), std::nullopt);
}

TEST(ZScore, TheValueOfAScoreHasIt) {
  ZScore scores;
  for (int i = 0; i < 300; ++i) {
    scores.add(2 + std::sin(i) + 0.1 * std::cos(7.0 * i));
    for (const double score : {0.5, 1.0, 3.0, 11.0}) {
      const double bound = scores.value_of_score(score);
      const std::size_t stay = std::min<std::size_t>(scores.values().size(), ZScore::kWindow - 1);
      if (stay + 1 < ZScore::kEnough || static_cast<double>(stay) <= score * score) {
        EXPECT_TRUE(std::isinf(bound)) << i;
        continue;
      }
      EXPECT_NEAR(ZScore(scores).add(bound).value_or(0), score, 1e-9) << i;
      EXPECT_GT(ZScore(scores).add(bound + 0.01).value_or(0), score) << i;
    }
  }
}

TEST(ZScore, AmongEqualValuesEveryLargerOneIsAnOutlier) {
  ZScore scores;
  for (int i = 0; i < 20; ++i) scores.add(0.1);
  EXPECT_EQ(scores.value_of_score(3), 0.1);
  EXPECT_TRUE(std::isinf(scores.value_of_score(5)));  // of 21 values none has a score above sqrt(20)
}

TEST(ZScore, GoesOnWhereItStopped) {
  ZScore whole;
  for (int i = 0; i < 300; ++i) whole.add(std::sin(i));
  ZScore resumed(whole.values());
  for (int i = 300; i < 310; ++i) EXPECT_EQ(resumed.add(std::sin(i)), whole.add(std::sin(i))) << i;
}

TEST(ZScore, RefusesAWindowThatItCannotHaveWritten) {
  EXPECT_THROW(ZScore(std::deque<double>(129, 1.0)), InternalError);
  EXPECT_THROW(ZScore({1.0, std::nan("")}), InternalError);
}

}  // namespace
}  // namespace trireme::metrics
