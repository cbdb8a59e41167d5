#include "trireme/comm/watch/hang_summary.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "trireme/base/copy_bytes.hpp"
#include "trireme/base/fnv.hpp"

namespace trireme {
namespace {

constexpr std::size_t kMostGroups = 4096;

std::uint64_t hash_of_name(std::string_view group) { return fnv1a(group.substr(0, sizeof CallRecord{}.group - 1)); }

/// What comes before the groups.
struct Head {
  static constexpr std::uint32_t kMagic = 0x54524d53;
  std::uint32_t magic = kMagic;
  std::int32_t rank = 0, world_size = 0, pid = 0;
  char host[64] = "", last_call[320] = "";
};
static_assert(std::is_trivially_copyable_v<Head> && std::is_trivially_copyable_v<GroupProgress>);

template <std::size_t N>
std::string words(const char (&from)[N]) {
  return {from, strnlen(from, N)};
}

const GroupProgress* progress_on(const RankSummary& summary, std::string_view group) {
  const auto at = std::ranges::find(summary.groups, hash_of_name(group), &GroupProgress::group);
  return at == summary.groups.end() ? nullptr : &*at;
}

}  // namespace

RankSummary summary_of(const FlightRecord& box, const std::vector<CallRecord>& step_calls) {
  std::map<std::uint64_t, GroupProgress> groups;
  const auto add = [&groups](const CallRecord& call, bool hashes) {
    if (call.pairwise()) return;
    const std::uint64_t key = hash_of_name({call.group, strnlen(call.group, sizeof call.group)});
    GroupProgress& progress = groups.try_emplace(key, GroupProgress{.group = key}).first->second;
    progress.seq = std::max(progress.seq, call.seq);
    if (hashes) progress.calls = progress.calls * kFnvPrime + hash_of(call);
  };
  // A group may not have been used in this step.
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(box.calls, FlightRecord::kCalls); ++i) add(box.ring[i], false);
  for (const CallRecord& call : step_calls) add(call, true);
  RankSummary out{.rank = box.rank,
                  .world_size = box.world_size,
                  .pid = box.pid,
                  .host = words(box.host),
                  .last_call = last_call(box),
                  .groups = {}};
  for (const auto& [key, progress] : groups)
    if (out.groups.size() < kMostGroups) out.groups.push_back(progress);
  return out;
}

std::vector<std::uint8_t> to_bytes(const RankSummary& summary) {
  Head head{.rank = summary.rank, .world_size = summary.world_size, .pid = summary.pid};
  summary.host.copy(head.host, sizeof head.host - 1);
  summary.last_call.copy(head.last_call, sizeof head.last_call - 1);
  std::vector<std::uint8_t> out(sizeof head + summary.groups.size() * sizeof(GroupProgress));
  std::memcpy(out.data(), &head, sizeof head);
  copy_bytes(out.data() + sizeof head, summary.groups.data(), summary.groups.size() * sizeof(GroupProgress));
  return out;
}

std::optional<RankSummary> summary_from(std::span<const std::uint8_t> bytes) {
  Head head;
  if (bytes.size() < sizeof head || (bytes.size() - sizeof head) % sizeof(GroupProgress) != 0 ||
      bytes.size() > sizeof head + kMostGroups * sizeof(GroupProgress))
    return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != Head::kMagic) return std::nullopt;
  RankSummary out{.rank = head.rank,
                  .world_size = head.world_size,
                  .pid = head.pid,
                  .host = words(head.host),
                  .last_call = words(head.last_call),
                  .groups = std::vector<GroupProgress>((bytes.size() - sizeof head) / sizeof(GroupProgress))};
  copy_bytes(out.groups.data(), bytes.data() + sizeof head, bytes.size() - sizeof head);
  return out;
}

bool has_arrived(const RankSummary& summary, const CallRecord& call) {
  const GroupProgress* progress = progress_on(summary, {call.group, strnlen(call.group, sizeof call.group)});
  return progress != nullptr && progress->seq >= call.seq;
}

std::vector<int> unlike_ranks(const std::map<int, RankSummary>& summaries, const std::string& group, std::size_t most) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<int>> kinds;
  for (const auto& [rank, summary] : summaries) {
    const GroupProgress* progress = progress_on(summary, group);
    kinds[progress ? std::pair(progress->seq, progress->calls) : std::pair<std::uint64_t, std::uint64_t>()].push_back(
        rank);
  }
  std::vector<std::pair<std::size_t, int>> firsts;  // how many there are of the kind, and the first of them
  for (const auto& [kind, ranks] : kinds) firsts.emplace_back(ranks.size(), ranks.front());
  std::ranges::sort(firsts);
  std::vector<int> out;
  for (const auto& [count, rank] : firsts)
    if (out.size() < most) out.push_back(rank);
  return out;
}

}  // namespace trireme
