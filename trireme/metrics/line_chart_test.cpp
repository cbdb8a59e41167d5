#include "trireme/metrics/line_chart.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::metrics {
namespace {

using testing::HasSubstr;

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(LineChart, PointsTicksAndNames) {
  const std::string svg =
      draw_svg({.title = "a < b",
                .x_title = "batch size",
                .y_title = "seconds",
                .x = {"2", "4", "8"},
                .lines = {{"none", {10, 5, 2.5}}, {"pipeline", {30, std::numeric_limits<double>::quiet_NaN(), 8}}}});
  EXPECT_EQ(count(svg, "<circle"), 5) << "NaN is no point";
  EXPECT_EQ(count(svg, "<polyline"), 2);
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("<title>none, 4: 5</title>"));
  EXPECT_THAT(svg, HasSubstr(">30</text>"));
  EXPECT_LE(count(svg, "stroke=\"#d1d9e0\""), 8);
  // The largest value is at the top of the axis, and twice as high as its half.
  EXPECT_THAT(svg, HasSubstr("cy=\"46\""));
}

TEST(LineChart, Empty) {
  EXPECT_THAT(draw_svg({}), HasSubstr("</svg>"));
  EXPECT_THAT(draw_svg({.x = {"1"}, .lines = {{"zero", {0}}}}), HasSubstr("<circle"));
}

}  // namespace
}  // namespace trireme::metrics
