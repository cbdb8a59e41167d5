#pragma once
// Spelling suggestions: the known word nearest to an unknown one.
#include <string>
#include <vector>

namespace trireme::config {

/// Empty if none is near: more than half of the letters would have to change, and neither is a prefix of the other.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

}  // namespace trireme::config
