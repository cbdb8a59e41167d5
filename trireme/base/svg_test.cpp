#include "trireme/base/svg.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(XmlEscaped, LeavesNothingThatMarkupCouldBeMadeOf) {
  EXPECT_EQ(xml_escaped("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(xml_escaped("é\t\n"), "é\t\n");
  EXPECT_EQ(xml_escaped(std::string_view("\0\x1b\xff", 3)), "\uFFFD\uFFFD\uFFFD");
}

TEST(SvgNumber, IsShortAndAlwaysANumber) {
  EXPECT_EQ(svg_number(12.5), "12.5");
  EXPECT_EQ(svg_number(3), "3");
  EXPECT_EQ(svg_number(100), "100");
  EXPECT_EQ(svg_number(-0.001), "0");
  EXPECT_EQ(svg_number(1.0 / 3, 4), "0.3333");
  EXPECT_EQ(svg_number(std::numeric_limits<double>::quiet_NaN()), "0");
}

TEST(Ticks, AreRound) {
  EXPECT_DOUBLE_EQ(tick_step(1, 6), 0.2);
  EXPECT_DOUBLE_EQ(tick_step(6, 6), 1);
  EXPECT_DOUBLE_EQ(tick_step(7, 6), 2);
  EXPECT_DOUBLE_EQ(tick_step(0, 6), 1);
  EXPECT_THAT(ticks_between(0.9, 3.1, 6), testing::ElementsAre(1, 1.5, 2, 2.5, 3));
  EXPECT_THAT(ticks_between(5, 5, 6), testing::ElementsAre(5));
}

}  // namespace
}  // namespace trireme
