#include "trireme/base/terminal.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace trireme {
namespace {

/// A real terminal, as far as isatty and ioctl can tell.
struct PseudoTerminal {
  explicit PseudoTerminal(unsigned short columns) {
    winsize size{};
    size.ws_row = 24;
    size.ws_col = columns;
    if (::openpty(&controller, &fd, nullptr, nullptr, &size) != 0) ADD_FAILURE() << "openpty failed";
  }
  ~PseudoTerminal() {
    ::close(fd);
    ::close(controller);
  }
  int controller = -1;
  int fd = -1;
};

TEST(TerminalFacts, AFileIsNoTerminal) {
  const int fd = ::open("/dev/null", O_WRONLY);
  const TerminalFacts facts = terminal_facts(fd, nullptr, "xterm");
  ::close(fd);
  EXPECT_FALSE(facts.tty);
  EXPECT_FALSE(facts.color);
  EXPECT_EQ(facts.width, 100);
}

TEST(TerminalFacts, ATerminalHasItsWidthAndColour) {
  const PseudoTerminal terminal(137);
  const TerminalFacts facts = terminal_facts(terminal.fd, nullptr, "xterm-256color");
  EXPECT_TRUE(facts.tty);
  EXPECT_TRUE(facts.color);
  EXPECT_EQ(facts.width, 137);
}

TEST(TerminalFacts, ATerminalThatDoesNotKnowItsWidthHasTheDefault) {
  EXPECT_EQ(terminal_facts(PseudoTerminal(0).fd, nullptr, "xterm").width, 100);
}

TEST(TerminalFacts, ColourCanBeRefused) {
  const PseudoTerminal terminal(80);
  EXPECT_FALSE(terminal_facts(terminal.fd, "1", "xterm").color);
  EXPECT_FALSE(terminal_facts(terminal.fd, "0", "xterm").color);
  EXPECT_TRUE(terminal_facts(terminal.fd, "", "xterm").color);
  EXPECT_FALSE(terminal_facts(terminal.fd, nullptr, "dumb").color);
  EXPECT_FALSE(terminal_facts(terminal.fd, nullptr, nullptr).color);
  EXPECT_TRUE(terminal_facts(terminal.fd, "1", "xterm").tty);
}

TEST(Style, MarksOnlyWithColour) {
  EXPECT_EQ(Style(true).bold("2.31"), "\x1B[1m2.31\x1B[0m");
  EXPECT_EQ(Style(true).dim("x"), "\x1B[2mx\x1B[0m");
  EXPECT_EQ(Style(true).red("x"), "\x1B[31mx\x1B[0m");
  EXPECT_EQ(Style(true).yellow("x"), "\x1B[33mx\x1B[0m");
  EXPECT_EQ(Style(false).bold("2.31"), "2.31");
  EXPECT_EQ(Style().red("2.31"), "2.31");
}

}  // namespace
}  // namespace trireme
