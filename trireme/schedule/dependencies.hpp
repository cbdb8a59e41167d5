#pragma once
// Which actions of one rank the actions of all ranks depend on.
#include <map>

#include "trireme/schedule/schedule.hpp"

namespace trireme::schedule {

/// By action: the place in the program of `rank` of the last action that it waits for, directly or through others; -1:
/// it waits for none. Actions that can never run are left out (replay() names them).
std::map<Action, int> last_awaited(const Schedule& schedule, int rank);

}  // namespace trireme::schedule
