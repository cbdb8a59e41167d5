#pragma once
// Two ranks that did not do the same thing, put into words.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/comm/call.hpp"

namespace trireme {

/// Names both ranks and both calls. `group` is the group's text.
CommError mismatch_error(const std::string& group, int rank_a, const CallRecord& a, int rank_b, const CallRecord& b);

/// What is known of a rank's calls on one group.
struct RankCalls {
  int rank = 0;                     // in the world
  int in_group = -1;                // its rank in the group; -1: not known, and messages are not compared
  std::vector<CallRecord> calls{};  // of the step, on this group, oldest first
  bool ended = false;               // it has ended its step: it makes no more calls
};

/// The first place where two ranks of a group differ, as the text of an error; nothing when all that both have is
/// alike, and one that made fewer calls may still make them.
std::optional<std::string> first_difference(const std::string& group, const RankCalls& a, const RankCalls& b);

/// The same for ranks that have shown all calls of their step, on whatever group: `rank_calls` by world rank.
std::optional<std::string> first_difference(const std::map<int, std::vector<CallRecord>>& rank_calls);

}  // namespace trireme
