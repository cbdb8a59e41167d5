#pragma once
// A collective of ranks that share memory: all their calls in, all their outputs written.
#include <vector>

#include "trireme/comm/call.hpp"

namespace trireme {

/// `calls` by rank, all of one kind and checked. Reductions go in rank order; avg is done as sum.
void do_collective(const std::vector<Call>& calls);

}  // namespace trireme
