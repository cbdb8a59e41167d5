#include "trireme/comm/time_limit.hpp"

#include <algorithm>

namespace trireme {

// The worker's own calls have the same limit without an awaited rank: the others are in these calls already.
LongWork::LongWork(const World& world, int worker)
    : TimeLimit(world, CallLimit{.seconds = std::max(world.options().timeout_s, world.options().init_timeout_s),
                                 .awaited = worker == world.rank() ? -1 : worker}) {}

}  // namespace trireme
