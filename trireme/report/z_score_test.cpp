#include "trireme/report/z_score.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::report {
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
}  // namespace trireme::report
