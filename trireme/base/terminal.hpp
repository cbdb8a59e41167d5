#pragma once
// Terminal width and colour support, and text styles that are omitted if colour is not supported.
#include <string>
#include <string_view>

namespace trireme {

struct TerminalFacts {
  bool tty = false;
  int width = 100;  // also if the output is a file or the width is unknown
  bool color = false;
};

/// `no_color` and `term` are the values of NO_COLOR and TERM, null if unset: only runtime/ reads the environment.
/// Colour requires a terminal, no NO_COLOR (https://no-color.org: empty counts as unset) and a TERM other than dumb.
TerminalFacts terminal_facts(int fd, const char* no_color, const char* term);

/// Text styles with fixed meanings: dim labels, a bold loss, yellow warnings, red errors.
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
