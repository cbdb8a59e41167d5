#pragma once
// What other trainers assume when their file does not say.
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/foreign/aliases.hpp"
#include "trireme/config/read/setting.hpp"

namespace trireme::config {

/// Our keys with the values that a trainer takes when its file is silent, where our own defaults differ and the result
/// of a run depends on it. Keys of [model] only matter where the file describes a model.
const std::vector<std::pair<std::string, Value>>& assumed(Framework framework);

}  // namespace trireme::config
