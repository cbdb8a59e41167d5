#pragma once
// Which settings of other trainers have no effect on what is trained: logs, files, speed.
#include "trireme/config/schema/setting.hpp"
#include "trireme/config/translate/aliases.hpp"

namespace trireme::config {

/// Whether a setting without a counterpart can be left out without changing the result: one of logs, files, overlap or
/// other speed, or a switch with that trainer's default. False if in doubt: a switch that is off may be on by default.
bool changes_nothing(Framework from, const Setting& setting);

}  // namespace trireme::config
