#pragma once
// A list in an error message.
#include <string>
#include <vector>

namespace trireme {

/// The first few lines, each indented on a line of its own, and how many more there are: "\n  a\n  b\n  and 3 more".
std::string listed(const std::vector<std::string>& lines);

}  // namespace trireme
