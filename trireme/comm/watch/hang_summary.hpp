#pragma once
// What a rank of a large job publishes of its calls when a hang is diagnosed: a few hundred bytes, which tell who has
// arrived at a call, and whose calls differ. Only those few ranks are then asked for the calls themselves.
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/calls/flight_recorder.hpp"

namespace trireme {

/// The collective calls of a rank on one group.
struct GroupProgress {
  std::uint64_t group = 0;  // the hash of its name in the records
  std::uint64_t seq = 0;    // of the last one
  std::uint64_t calls = 0;  // a hash of those of this step, in order
};

struct RankSummary {
  std::int32_t rank = 0, world_size = 0, pid = 0;
  std::string host, last_call;
  std::vector<GroupProgress> groups;
};

RankSummary summary_of(const FlightRecord& box, const std::vector<CallRecord>& step_calls);

std::vector<std::uint8_t> to_bytes(const RankSummary& summary);
/// nullopt: not a summary. Whoever reaches the store may have written it.
std::optional<RankSummary> summary_from(std::span<const std::uint8_t> bytes);

/// Whether the rank has reached a collective call of its group.
bool has_arrived(const RankSummary& summary, const CallRecord& call);

/// One rank of each kind: with another last call on the group, or other calls before it. The rarest first, at most
/// `most`.
std::vector<int> unlike_ranks(const std::map<int, RankSummary>& summaries, const std::string& group, std::size_t most);

}  // namespace trireme
