#include "tools/figures/terminal_picture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::figures {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string picture(std::string_view written) {
  return terminal_picture(terminal_lines(written, kTerminalColumns), "t");
}

TEST(TerminalPicture, PutsWordsAtTheirColumns) {
  const std::string svg = picture("ab c   d<");
  EXPECT_THAT(svg, HasSubstr("<text x=\"20\" y=\"54.5\" textLength=\"28.8\">ab c</text>"));
  EXPECT_THAT(svg, HasSubstr("<text x=\"70.4\" y=\"54.5\" textLength=\"14.4\">d&lt;</text>"));
}

TEST(TerminalPicture, HasTheColoursOfTheTerminal) {
  EXPECT_THAT(picture("\x1B[1mloss\x1B[0m"), HasSubstr("fill=\"#ffffff\" font-weight=\"bold\">loss</text>"));
  EXPECT_THAT(picture("\x1B[2mrun\x1B[0m x"), HasSubstr("fill=\"#8d97a5\">run</text>"));
  EXPECT_THAT(picture("\x1B[31mno\x1B[0m"), HasSubstr("fill=\"#f47067\">no</text>"));
  EXPECT_THAT(picture("\x1B[30;42mF0\x1B[0m"),
              HasSubstr("<rect x=\"20\" y=\"42\" width=\"14.4\" height=\"17\" fill=\"#6bc46d\"/>"));
}

TEST(TerminalPicture, DrawsTheBlocksOfABar) {
  const std::string svg = picture("██░ 66%");
  EXPECT_THAT(svg, HasSubstr("width=\"14.4\" height=\"17\" fill=\"#d8dee6\"/>"));
  EXPECT_THAT(svg, HasSubstr("width=\"7.2\" height=\"17\" fill=\"#d8dee6\" opacity=\"0.2\"/>"));
  EXPECT_THAT(svg, HasSubstr(">66%</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("█")));
}

TEST(TerminalPicture, IsAsTallAsItsLines) {
  EXPECT_THAT(picture("a"), HasSubstr("width=\"760\" height=\"71\""));
  EXPECT_THAT(picture("a\r\n\r\nb"), HasSubstr("width=\"760\" height=\"105\""));
}

}  // namespace
}  // namespace trireme::figures
