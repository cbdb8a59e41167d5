#include "trireme/layout/axis.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/layout_helpers.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;

std::vector<Axis> listed(AxisSet set) {
  std::vector<Axis> axes;
  for (Axis axis : set) axes.push_back(axis);
  return axes;
}

TEST(Axis, NamesAreReadBack) {
  for (Axis axis : kAxes) EXPECT_EQ(parse_axis(name(axis)), axis);
  EXPECT_STREQ(name(Axis::edp), "edp");
}

TEST(Axis, AnUnknownNameIsRefused) {
  for (const char* word : {"", "TP", "tp ", "e"})
    EXPECT_THAT(message_of<ConfigError>([&] { parse_axis(word); }),
                HasSubstr("must be one of pp, dp, cp, tp, ep, edp"));
}

TEST(AxisSet, IteratesInTheOrderOfTheEnumWhateverTheOrderGiven) {
  EXPECT_EQ(listed({Axis::edp, Axis::tp, Axis::dp, Axis::tp}), (std::vector{Axis::dp, Axis::tp, Axis::edp}));
  EXPECT_TRUE(listed({}).empty());
  EXPECT_EQ((AxisSet{Axis::cp, Axis::dp}.str()), "dp,cp");
  EXPECT_EQ(AxisSet().str(), "");
}

TEST(AxisSet, SetOperations) {
  constexpr AxisSet tokens{Axis::dp, Axis::cp};
  static_assert(tokens.contains(Axis::cp) && !tokens.contains(Axis::tp));
  EXPECT_EQ(tokens | Axis::tp, (AxisSet{Axis::dp, Axis::cp, Axis::tp}));
  EXPECT_EQ(tokens & Axis::dp, AxisSet(Axis::dp));
  EXPECT_EQ(tokens - Axis::dp, AxisSet(Axis::cp));
  EXPECT_TRUE((tokens & Axis::pp).empty());
  EXPECT_EQ(tokens.size(), 2);
}

}  // namespace
}  // namespace trireme
