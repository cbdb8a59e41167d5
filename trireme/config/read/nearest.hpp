#pragma once
// The known word that a wrong one most likely stands for.
#include <string>
#include <vector>

namespace trireme::config {

/// Empty when none is near: more than half of the letters would have to change, and neither begins with the other.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

}  // namespace trireme::config
