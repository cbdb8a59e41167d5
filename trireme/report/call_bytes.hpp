#pragma once
// How many bytes a communication call moves.
#include <optional>

#include "trireme/report/trace_file.hpp"

namespace trireme::report {

/// What one rank sends to the others of its group in this call, at least: the same as Group's traffic counters
/// (comm/group.cpp) for calls without a root. nullopt: not known. A broadcast, gather or scatter counts on its root or
/// at all others, as there: `is_root`.
std::optional<double> sent_bytes(const TracedCall& call, int ranks, bool is_root);

/// Bytes over the links in the sense of NCCL's tests: divided by the time of the call they give the bus bandwidth,
/// which does not depend on the number of ranks. nullopt: not known, or nothing is moved.
std::optional<double> bus_bytes(const TracedCall& call, int ranks);

}  // namespace trireme::report
