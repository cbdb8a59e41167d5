#include "trireme/base/drawing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Drawing, IsOnWhiteAndSaysWhatItShows) {
  const std::string svg = Drawing(100, "a < b").svg();
  EXPECT_THAT(svg, testing::StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"100\""));
  EXPECT_THAT(svg, HasSubstr("<title>a &lt; b</title>"));
  EXPECT_THAT(svg, HasSubstr("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
}

TEST(Drawing, LeavesOutWhatIsTheDefault) {
  Drawing out(10, "");
  out.rect(1, 2, 3.04, 4, {.fill = "red"});
  EXPECT_THAT(out.svg(), HasSubstr("<rect x=\"1\" y=\"2\" width=\"3\" height=\"4\" fill=\"red\"/>"));
  out.line({0, 0}, {5, 5}, {.stroke = "blue", .stroke_width = 2, .dashes = "4 3"});
  EXPECT_THAT(out.svg(), HasSubstr("y2=\"5\" fill=\"none\" stroke=\"blue\" stroke-width=\"2\" stroke-dasharray"));
}

TEST(Drawing, ShapesMayHaveTips) {
  Drawing out(10, "", 50);
  out.circle({1, 2}, 3, {.fill = "red", .tip = "a < b"});
  EXPECT_THAT(out.svg(), HasSubstr("<circle cx=\"1\" cy=\"2\" r=\"3\" fill=\"red\"><title>a &lt; b</title></circle>"));
  out.polyline({{0, 0}, {5, 5}}, {.stroke = "blue"});
  EXPECT_THAT(out.svg(), HasSubstr("<polyline points=\"0 0 5 5\" fill=\"none\" stroke=\"blue\"/>"));
  EXPECT_THAT(out.svg(), HasSubstr("viewBox=\"0 0 50 10\""));
}

TEST(Drawing, AnArrowEndsWhereItPoints) {
  Drawing out(10, "");
  out.arrow({0, 0}, {20, 0}, {.stroke = "blue"});
  EXPECT_THAT(out.svg(), HasSubstr("<line x1=\"0\" y1=\"0\" x2=\"13\" y2=\"0\""));
  EXPECT_THAT(out.svg(), HasSubstr("<polygon points=\"20 0 13 3.5 13 -3.5\" fill=\"blue\"/>"));
}

TEST(Drawing, KnowsWhereItsLabelsAre) {
  Drawing out(100, "");
  out.label({100, 50}, "abcd");
  out.label({100, 50}, "abcd", {.anchor = Anchor::end});
  out.label({100, 50}, "abcd", {.anchor = Anchor::middle, .upwards = true});
  ASSERT_EQ(out.labels().size(), 3);
  const LabelBox &start = out.labels()[0], &end = out.labels()[1], &up = out.labels()[2];
  const double width = estimated_width("abcd", 12);
  EXPECT_EQ(start.left, 100);
  EXPECT_DOUBLE_EQ(start.right, 100 + width);
  EXPECT_DOUBLE_EQ(end.left, 100 - width);
  EXPECT_DOUBLE_EQ(up.bottom - up.top, width);
  EXPECT_DOUBLE_EQ((up.bottom + up.top) / 2, 50);
  EXPECT_LT(up.right - up.left, 12);
  EXPECT_THAT(out.svg(), HasSubstr("transform=\"rotate(-90 100 50)\""));
}

TEST(EstimatedWidth, CountsLettersAndNotBytes) {
  EXPECT_GT(estimated_width("WWW", 12), estimated_width("iii", 12));
  EXPECT_DOUBLE_EQ(estimated_width("·", 10), estimated_width("W", 10));
  EXPECT_DOUBLE_EQ(estimated_width("abc", 24), 2 * estimated_width("abc", 12));
}

}  // namespace
}  // namespace trireme
