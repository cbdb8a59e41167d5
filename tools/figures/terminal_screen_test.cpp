#include "tools/figures/terminal_screen.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/base/terminal.hpp"

namespace trireme::figures {
namespace {

using testing::ElementsAre;

std::vector<std::string> shown(std::string_view written, int columns = 20) {
  std::vector<std::string> out;
  for (const TerminalLine& line : terminal_lines(written, columns)) {
    out.emplace_back();
    for (const TerminalCell& cell : line) out.back() += cell.glyph;
  }
  return out;
}

TEST(TerminalLines, LinesAndReturns) {
  EXPECT_THAT(shown("one\r\ntwo  \r\n\r\nfour\r\n"), ElementsAre("one", "two", "", "four"));
  EXPECT_THAT(shown("abcdef\rxy"), ElementsAre("xycdef"));
  EXPECT_THAT(shown("ab\b\bx"), ElementsAre("xb"));
  EXPECT_THAT(shown("a\tb"), ElementsAre("a       b"));
  EXPECT_THAT(shown(""), ElementsAre());
}

TEST(TerminalLines, ALineThatIsDrawnAgainReplacesTheOldOne) {
  EXPECT_THAT(shown("\r\x1B[K  connecting ...\r\x1B[K  opening\r\x1B[Kdone\r\n"), ElementsAre("done"));
  EXPECT_THAT(shown("abcdef\r\x1B[2Kx"), ElementsAre("x"));
  EXPECT_THAT(shown("abcdef\x1B[3D\r\x1B[1Kx"), ElementsAre("xbcdef"));
}

TEST(TerminalLines, WrapAtTheWidth) {
  EXPECT_THAT(shown("abcdef", 4), ElementsAre("abcd", "ef"));
  // The cursor stays behind a full line: an erased bar of the whole width leaves no empty line.
  EXPECT_THAT(shown("abcd\r\x1B[Kx", 4), ElementsAre("x"));
  EXPECT_THROW(terminal_lines("a", 0), ConfigError);
}

TEST(TerminalLines, AreMadeOfCodePoints) {
  EXPECT_THAT(shown("█░ 4 × 128 → 3", 4), ElementsAre("█░ 4", " × 1", "28 →", " 3"));
  EXPECT_THAT(shown("a\xFF"), ElementsAre("a\uFFFD"));
}

TEST(TerminalLines, KnowOurStyles) {
  const Style style(true);
  const std::string written = style.bold("b") + style.dim("d") + style.red("r") + style.yellow("y") + "n";
  const std::vector<TerminalLine> lines = terminal_lines(written, 20);
  ASSERT_EQ(lines.size(), 1);
  EXPECT_THAT(lines[0],
              ElementsAre(TerminalCell{"b", {.bold = true}}, TerminalCell{"d", {.dim = true}},
                          TerminalCell{"r", {.colour = 1}}, TerminalCell{"y", {.colour = 3}}, TerminalCell{"n"}));
}

TEST(TerminalLines, KnowSeveralCodesAtOnce) {
  const TerminalLine line = terminal_lines("\x1B[97;44mx\x1B[22;39;49;1;92my\x1B[mz", 20).at(0);
  EXPECT_THAT(line, ElementsAre(TerminalCell{"x", {.colour = 15, .background = 4}},
                                TerminalCell{"y", {.bold = true, .colour = 10}}, TerminalCell{"z"}));
}

TEST(TerminalLines, SkipWhatTheyDoNotKnow) {
  EXPECT_THAT(shown("a\x1B[?25lb\x1B[12;3Hc\x1B]0;title\ad\x1B(e"), ElementsAre("abcde"));
  EXPECT_THAT(shown("a\x1B"), ElementsAre("a"));
  EXPECT_THAT(shown("a\x1B[12"), ElementsAre("a"));
  EXPECT_THAT(shown("a\x1B]0;"), ElementsAre("a"));
}

}  // namespace
}  // namespace trireme::figures
