#pragma once
// Executes a collective for ranks that share memory: takes the calls of all ranks and writes all outputs.
#include <vector>

#include "trireme/comm/calls/call.hpp"

namespace trireme {

/// `calls` by rank, all of the same kind and checked. Reductions are in rank order; avg is computed as sum.
void do_collective(const std::vector<Call>& calls);

}  // namespace trireme
