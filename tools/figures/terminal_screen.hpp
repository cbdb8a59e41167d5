#pragma once
// What a terminal shows after a program has written to it: the few control sequences that trireme uses.
#include <string>
#include <string_view>
#include <vector>

namespace trireme::figures {

/// Colours are 0 to 15 in the order of the terminal's palette; -1: the default.
struct CellLook {
  bool bold = false, dim = false;
  int colour = -1, background = -1;
  bool operator==(const CellLook&) const = default;
};

struct TerminalCell {
  std::string glyph = " ";  // one code point
  CellLook look = {};
  bool operator==(const TerminalCell&) const = default;
};

using TerminalLine = std::vector<TerminalCell>;

/// The lines on a terminal of so many columns and any number of rows, without spaces at their ends. Carriage return,
/// newline, backspace and tab move; ESC [ K erases in the line, ESC [ m sets bold, dim and the 16 colours; all other
/// control sequences are skipped. Every code point is one column wide.
std::vector<TerminalLine> terminal_lines(std::string_view written, int columns);

}  // namespace trireme::figures
