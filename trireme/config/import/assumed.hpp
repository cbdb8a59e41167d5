#pragma once
// The defaults of other trainers.
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/schema/setting.hpp"
#include "trireme/config/translate/aliases.hpp"

namespace trireme::config {

/// Our keys with a trainer's defaults, if they differ from ours and affect the result of a run. Keys of [model] only
/// apply if the file describes a model.
const std::vector<std::pair<std::string, Value>>& assumed(Framework framework);

}  // namespace trireme::config
