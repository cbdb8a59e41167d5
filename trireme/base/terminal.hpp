#pragma once
// What the terminal can show, and colours that vanish where it cannot show them.
#include <string>
#include <string_view>

namespace trireme {

struct TerminalFacts {
  bool tty = false;
  int width = 100;  // also when the output is a file, or the terminal will not say
  bool color = false;
};

/// `no_color` and `term` are the values of NO_COLOR and TERM, null when unset: only runtime/ reads the environment.
/// Colour needs a terminal, no NO_COLOR (https://no-color.org: an empty one does not count) and a TERM other than dumb.
TerminalFacts terminal_facts(int fd, const char* no_color, const char* term);

/// Marks text for people. Few marks with fixed meanings: dim labels, a bold loss, yellow warnings, red errors.
class Style {
 public:
  explicit Style(bool color = false) : color_(color) {}

  std::string bold(std::string_view text) const { return marked("\x1B[1m", text); }
  std::string dim(std::string_view text) const { return marked("\x1B[2m", text); }
  std::string red(std::string_view text) const { return marked("\x1B[31m", text); }
  std::string yellow(std::string_view text) const { return marked("\x1B[33m", text); }

 private:
  std::string marked(std::string_view begin, std::string_view text) const;

  bool color_;
};

}  // namespace trireme
