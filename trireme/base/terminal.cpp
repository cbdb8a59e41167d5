#include "trireme/base/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

namespace trireme {

TerminalFacts terminal_facts(int fd, const char* no_color, const char* term) {
  TerminalFacts facts;
  facts.tty = ::isatty(fd) == 1;
  if (winsize size{}; facts.tty && ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) facts.width = size.ws_col;
  const bool refused = no_color != nullptr && *no_color != '\0';
  const bool capable = term != nullptr && std::string_view(term) != "dumb";
  facts.color = facts.tty && !refused && capable;
  return facts;
}

std::string Style::marked(std::string_view begin, std::string_view text) const {
  if (!color_) return std::string(text);
  std::string out(begin);
  out += text;
  out += "\x1B[0m";
  return out;
}

}  // namespace trireme
