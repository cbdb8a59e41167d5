#include "trireme/report/plot.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::report {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Plot, DrawsLinesFromCornerToCorner) {
  const std::string html = plot_html({.x = {.title = "step"},
                                      .y = {.title = "loss", .low = 0, .high = 10},
                                      .lines = {{"a<b", "run0", {0, 5, 10}, {0, kNan, 10}}}});
  EXPECT_THAT(html, HasSubstr("d=\"M0 1000M1000 0\"")) << "a gap where a value is missing";
  EXPECT_THAT(html, HasSubstr(R"("name":"a\u003cb")"));
  EXPECT_THAT(html, HasSubstr("a&lt;b</button>"));
  EXPECT_THAT(html, HasSubstr(R"("y":[0,null,10])"));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(Plot, StacksAreOnTopOfEachOther) {
  const std::string html = plot_html(
      {.y = {.low = 0, .high = 4}, .stacks = {{{0, 1}, {{"a", "forward", {1, 1}}, {"b", "backward", {2, 3}}}}}});
  EXPECT_THAT(html, HasSubstr("d=\"M0 750L1000 750L1000 1000L0 1000Z\""));
  EXPECT_THAT(html, HasSubstr("d=\"M0 250L1000 0L1000 750L0 750Z\""));
}

TEST(Plot, WithoutAPointOrWithOneIsDrawnToo) {
  EXPECT_THAT(plot_html({.lines = {{"a", "run0", {}, {}}}}), HasSubstr("<svg"));
  EXPECT_THAT(plot_html({.lines = {{"a", "run0", {3}, {7}}}}), Not(HasSubstr("nan")));
  EXPECT_THAT(plot_html({.lines = {{"a", "run0", {3, 4}, {kNan, kNan}}}}), Not(HasSubstr("nan")));
}

TEST(ThinOut, KeepsTheHighestAndTheLowest) {
  std::vector<double> x(100'000), y(x.size(), 1.0);
  std::iota(x.begin(), x.end(), 0);
  y[12'345] = 9;
  y[54'321] = -9;
  y[99'999] = kNan;
  thin_out(x, y, 1000);
  EXPECT_LE(x.size(), 1000u);
  EXPECT_EQ(x.size(), y.size());
  const auto high = std::ranges::find(y, 9.0), low = std::ranges::find(y, -9.0);
  ASSERT_NE(high, y.end());
  ASSERT_NE(low, y.end());
  EXPECT_EQ(x[static_cast<std::size_t>(high - y.begin())], 12'345);
  EXPECT_TRUE(std::ranges::is_sorted(x));
  thin_out(x, y, 1000);  // few enough: nothing happens
}

TEST(AxisText, HasUnits) {
  using Unit = PlotAxis::Unit;
  EXPECT_EQ(axis_text(0.25, Unit::percent), "25 %");
  EXPECT_EQ(axis_text(12'000, Unit::count), "12K");
  EXPECT_EQ(axis_text(0.012, Unit::seconds), "12 ms");
  EXPECT_EQ(axis_text(3 << 20, Unit::bytes), "3.00 MiB");
  EXPECT_EQ(axis_text(3e-5, Unit::scientific), "3e-05");
  EXPECT_EQ(axis_text(1e-17, Unit::number), "0");
}

}  // namespace
}  // namespace trireme::report
