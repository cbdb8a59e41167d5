#pragma once
// A terminal window as an SVG image.
#include <string>
#include <string_view>
#include <vector>

#include "tools/figures/terminal_screen.hpp"

namespace trireme::figures {

inline constexpr int kTerminalColumns = 100;

/// As wide as the other figures. Words are stretched to their columns, so that any monospaced font keeps them; blocks
/// of progress bars are drawn as shapes, since few fonts have them at the right width.
std::string terminal_picture(const std::vector<TerminalLine>& lines, std::string_view title);

}  // namespace trireme::figures
