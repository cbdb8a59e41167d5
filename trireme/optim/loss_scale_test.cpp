#include "trireme/optim/loss_scale.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

TEST(LossScale, GrowsAfterGoodStepsAndShrinksWhenPatienceEnds) {
  LossScale scale({.initial = 8, .growth_interval = 3, .hysteresis = 2});
  scale.update(true);
  EXPECT_EQ(scale.scale(), 8);  // the first one is tolerated
  scale.update(false);
  scale.update(true);
  EXPECT_EQ(scale.scale(), 4);  // a finite step in between does not reset the hysteresis
  scale.update(true);
  EXPECT_EQ(scale.scale(), 2);
  for (int i = 0; i < 3; ++i) scale.update(false);
  EXPECT_EQ(scale.scale(), 4);
  scale.update(true);
  EXPECT_EQ(scale.scale(), 4);  // growth has reset it
}

TEST(LossScale, StaysWithinItsBounds) {
  LossScale scale({.initial = 2, .growth_interval = 1, .hysteresis = 1, .most = 8});
  for (int i = 0; i < 9; ++i) scale.update(true);
  EXPECT_EQ(scale.scale(), 1);
  for (int i = 0; i < 9; ++i) scale.update(false);
  EXPECT_EQ(scale.scale(), 8);
  EXPECT_THROW(LossScale({.initial = 0.5}), ConfigError);
}

TEST(LossScale, GoesOnFromItsState) {
  LossScale a({.initial = 1024, .growth_interval = 5}), b({.initial = 1, .growth_interval = 5});
  const auto bad = [](int i) { return i % 7 == 3; };
  for (int i = 0; i < 20; ++i) a.update(bad(i));
  b.set_state(a.state());
  for (int i = 20; i < 60; ++i) {
    a.update(bad(i));
    b.update(bad(i));
  }
  EXPECT_EQ(a.state(), b.state());
}

}  // namespace
}  // namespace trireme
