#pragma once
// Which two ranks made different calls in a step, found by exchanging hashes: a few bytes per group, not the calls.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/calls/mismatch.hpp"
#include "trireme/comm/group.hpp"

namespace trireme {

/// All collective calls of a rank on one group, or all messages of one sender to one receiver, as the receiver or the
/// sender recorded them.
struct CallsHash {
  std::uint64_t group = 0;
  std::uint64_t hash = 0;           // equal on all ranks that made the same calls
  std::int32_t from = -1, to = -1;  // of messages, as world ranks
  bool operator==(const CallsHash&) const = default;
};

/// The hashes of `step_calls` on this group; for a group of several ranks always one for the collective calls.
std::vector<CallsHash> hashes_of(const Group& group, const std::vector<CallRecord>& step_calls);

struct Disagreement {
  std::uint64_t group = 0;
  int a = 0, b = 0;  // world ranks
};

/// The first one of the world in the order of ranks; `by_rank` has the hashes of all groups of each rank.
std::optional<Disagreement> first_disagreement(const std::vector<std::vector<CallsHash>>& by_rank);

/// Collective over `control`, the group of all ranks: the hashes of each rank.
std::vector<std::vector<CallsHash>> gathered(const std::vector<CallsHash>& hashes, Group& control);

/// Between two ranks: sends the calls of this step on `group` to world rank `other` and compares them with its own.
std::optional<std::string> difference_with(int other, const Group& group, const std::vector<CallRecord>& step_calls,
                                           Group& control);

}  // namespace trireme
