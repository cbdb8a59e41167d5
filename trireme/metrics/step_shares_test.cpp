#include "trireme/metrics/step_shares.hpp"

#include <gtest/gtest.h>

namespace trireme::metrics {
namespace {

TEST(StepShares, OfOneRankAreItsParts) {
  const StepShares shares = shares_of({.step = 10,
                                       .tail = 0.5,
                                       .ranks = {.elapsed = 9.5, .data = 1, .forward = 3, .backward = 4, .update = 1},
                                       .last_actions = {8}});
  EXPECT_DOUBLE_EQ(shares.data, 0.1);
  EXPECT_DOUBLE_EQ(shares.forward, 0.3);
  EXPECT_DOUBLE_EQ(shares.backward, 0.4);
  EXPECT_DOUBLE_EQ(shares.optimizer, 0.15);
  EXPECT_DOUBLE_EQ(shares.communication, 0);
  EXPECT_DOUBLE_EQ(shares.bubble, 0);
  EXPECT_NEAR(shares.other, 0.05, 1e-12);
}

/// The second rank is ready two seconds earlier, and waits for the first in the agreement.
TEST(StepShares, WaitingForASlowRankIsCommunication) {
  const StepTimes times{.step = 10, .ranks = {.elapsed = 10 + 8, .forward = 10 + 8}, .last_actions = {10, 8}};
  EXPECT_DOUBLE_EQ(shares_of(times).communication, 0.1);
  EXPECT_DOUBLE_EQ(shares_of(times).forward, 0.9);
}

/// Two stages, one microbatch: each is idle for half of the time. The first waits between its forward and its backward,
/// the second before its forward, and at the end while the first computes its backward.
TEST(StepShares, ThoseWithoutActionsWaitInTheBubble) {
  RankTime first{.elapsed = 8, .forward = 2, .backward = 2, .idle = 4};
  const RankTime second{.elapsed = 6, .forward = 2, .backward = 2, .idle = 2};
  EXPECT_DOUBLE_EQ(first.own_work(), 4);
  EXPECT_DOUBLE_EQ(second.own_work(), 4);
  first += second;
  StepTimes times{.step = 8, .ranks = first, .last_actions = {8, 6}, .pipeline = true};
  EXPECT_DOUBLE_EQ(shares_of(times).bubble, 0.5);
  EXPECT_DOUBLE_EQ(shares_of(times).communication, 0);
  EXPECT_DOUBLE_EQ(shares_of(times).sum(), 1);
}

/// Clocks of two processes: a rank may seem to end after the step.
TEST(StepShares, SumToOneInAnyCase) {
  for (const double step : {1.0, 0.5})
    for (const bool pipeline : {false, true}) {
      const StepShares shares = shares_of({.step = step,
                                           .tail = 0.1,
                                           .ranks = {.elapsed = 2.2, .data = 0.1, .forward = 1, .backward = 1.1},
                                           .last_actions = {1, 1.1},
                                           .pipeline = pipeline});
      EXPECT_NEAR(shares.sum(), 1, 1e-12);
      for (const double share : {shares.forward, shares.backward, shares.communication, shares.bubble, shares.optimizer,
                                 shares.data, shares.other})
        EXPECT_GE(share, 0);
    }
  EXPECT_EQ(shares_of({}).sum(), 0);
}

}  // namespace
}  // namespace trireme::metrics
