#include "trireme/planner/goodput.hpp"

#include <random>

#include <gtest/gtest.h>

namespace trireme::planner {
namespace {

TEST(Goodput, OfManyGpus) {
  const Goodput large = goodput_of({.gpus = 16'384});
  EXPECT_NEAR(large.failure_every_s / 3600, 3.05, 0.01);
  EXPECT_GT(large.part, 0.95);
  EXPECT_LT(large.part, goodput_of({.gpus = 64}).part);
  EXPECT_GT(goodput_of({.gpus = 8}).part, 0.999);
  EXPECT_EQ(goodput_of({.gpus = 8}).interval_s, 3600);
}

/// No other interval is better, by the same costs.
TEST(Goodput, TheIntervalIsTheBest) {
  const FailureFacts facts{.gpus = 4096, .blocked_s = 4, .longest_interval_s = 1e9};
  const Goodput best = goodput_of(facts);
  for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
    FailureFacts bounded = facts;
    bounded.longest_interval_s = best.interval_s * factor;
    const double interval = factor < 1 ? goodput_of(bounded).interval_s : best.interval_s * factor;
    const double part =
        1 / ((1 + facts.blocked_s / interval) * (1 + (interval / 2 + facts.restart_s) / best.failure_every_s));
    EXPECT_LT(part, best.part * (1 + 1e-4)) << factor;
  }
}

/// The formula next to random failures.
TEST(Goodput, AgreesWithASimulation) {
  const FailureFacts facts{.gpus = 2048, .hours_between_failures = 20'000, .blocked_s = 5};
  const Goodput predicted = goodput_of(facts);
  std::mt19937 random(3);
  std::exponential_distribution<double> next(1 / predicted.failure_every_s);
  double now = 0, useful = 0;
  for (int failure = 0; failure < 20'000; ++failure) {
    double left = next(random);
    now += left;
    const double cycle = predicted.interval_s + facts.blocked_s;
    useful += std::floor(left / cycle) * predicted.interval_s;  // what was saved
    now += facts.restart_s;
  }
  EXPECT_NEAR(useful / now, predicted.part, 0.005);
}

}  // namespace
}  // namespace trireme::planner
