#include "trireme/workloads/orbit_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::workloads {
namespace {

TEST(TwistOrbit, ByHand) {
  // r = 4 from (0.25, 0.5): x' = 0.25 + 4 * 0.5 * 0.5 = 1.25 -> 0.25, y' = 0.5 + 4 * 0.25 * 0.75 = 1.25 -> 0.25;
  // then x' = 0.25 + 4 * 0.25 * 0.75 = 1 -> 0, y' = 0.25 + 4 * 0 = 0.25; then x' = 0 + 0.75, y' = 0.25 + 0.75 -> 0.
  const Orbit expected = {{0.25, 0.5}, {0.25, 0.25}, {0, 0.25}, {0.75, 0}};
  EXPECT_EQ(twist_orbit(4, {0.25, 0.5}, 4), expected);
  // r = 2.5 from (0.1, 0.2): x' = 0.1 + 2.5 * 0.2 * 0.8 = 0.5, y' = 0.2 + 2.5 * 0.5 * 0.5 = 0.825.
  const Orbit two = twist_orbit(2.5, {0.1, 0.2}, 2);
  EXPECT_NEAR(two[1].x, 0.5, 1e-15);
  EXPECT_NEAR(two[1].y, 0.825, 1e-15);
}

TEST(TwistOrbit, StaysInTheUnitSquareAndHasAPoint) {
  for (const double rate : kOrbitRates)
    for (const OrbitPoint& p : twist_orbit(rate, {0.3, 0.7})) {
      ASSERT_TRUE(p.x >= 0 && p.x < 1) << p.x;
      ASSERT_TRUE(p.y >= 0 && p.y < 1) << p.y;
    }
  EXPECT_EQ(twist_orbit(4, {0.25, 0.5}, 1).size(), 1U);
  EXPECT_THROW(twist_orbit(4, {0.25, 0.5}, 0), ConfigError);
}

// A compiler that rounded differently would make another orbit within a hundred steps.
TEST(TwistOrbit, IsTheSameOnEveryMachine) {
  const OrbitPoint last = twist_orbit(4.1, {0.3, 0.7}).back();
  EXPECT_EQ(last.x, 0x1.7f64c1d18abfap-1);
  EXPECT_EQ(last.y, 0x1.89f2544f67bd6p-1);
}

TEST(OrbitData, IsBalancedAndAFunctionOfTheSeed) {
  const std::vector<LabelledOrbit> data = orbit_data(3, 7), again = orbit_data(3, 7), other = orbit_data(3, 8);
  ASSERT_EQ(data.size(), 15U);
  std::array<int, 5> counts{};
  for (std::size_t i = 0; i < data.size(); ++i) {
    ++counts[static_cast<std::size_t>(data[i].label)];
    EXPECT_EQ(data[i].points.size(), static_cast<std::size_t>(kOrbitPoints));
    EXPECT_EQ(data[i].points, again[i].points);
    EXPECT_NE(data[i].points, other[i].points);
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(data[i].points[0], data[j].points[0]);
  }
  EXPECT_THAT(counts, testing::Each(3));
  EXPECT_NE(orbit_data(1, 7, "validation")[0].points, data[0].points);
}

TEST(OrbitData, EachOrbitFollowsTheMapOfItsClass) {
  for (const LabelledOrbit& sample : orbit_data(1, 1))
    EXPECT_EQ(sample.points, twist_orbit(kOrbitRates[static_cast<std::size_t>(sample.label)], sample.points[0]));
  EXPECT_THAT(message_of<ConfigError>([] { orbit_data(0, 1); }), testing::HasSubstr("0 orbits per class"));
}

}  // namespace
}  // namespace trireme::workloads
