#pragma once
// Error messages for ranks that made different calls.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/comm/calls/call.hpp"

namespace trireme {

/// Names both ranks and both calls. `group` is the group's text.
CommError mismatch_error(const std::string& group, int rank_a, const CallRecord& a, int rank_b, const CallRecord& b);

/// The known calls of a rank on one group.
struct RankCalls {
  int rank = 0;                     // in the world
  int in_group = -1;                // its rank in the group; -1: unknown, and messages are not compared
  std::vector<CallRecord> calls{};  // of the step, on this group, oldest first
  bool ended = false;               // its step has ended: it makes no more calls
  std::int64_t ended_step = -1;     // which, by its tag; -1: not tagged
};

/// The first difference between two ranks of a group, as an error text; nullopt if all calls that both have match, and
/// the rank with fewer calls may still make the others.
std::optional<std::string> first_difference(const std::string& group, const RankCalls& a, const RankCalls& b);

/// The calls up to the end of the step, if there is one among them; all of them otherwise. Later calls belong to the
/// next step, which another rank may not have reached.
std::vector<CallRecord> until_step_end(std::vector<CallRecord> calls);

/// The same for ranks that have published all calls of their step, on any group: `rank_calls` by world rank.
std::optional<std::string> first_difference(const std::map<int, std::vector<CallRecord>>& rank_calls);

}  // namespace trireme
