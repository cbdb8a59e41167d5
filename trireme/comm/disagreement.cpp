#include "trireme/comm/disagreement.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/copy_bytes.hpp"
#include "trireme/base/fnv.hpp"

namespace trireme {
namespace {

std::vector<CallRecord> calls_on(const Group& group, const std::vector<CallRecord>& step_calls) {
  std::vector<CallRecord> own;
  const std::string name = group.str().substr(0, sizeof CallRecord{}.group - 1);
  std::copy_if(step_calls.begin(), step_calls.end(), std::back_inserter(own),
               [&name](const CallRecord& r) { return name == r.group; });
  return own;
}

int world_rank(const Group& group, int rank) { return group.world_ranks()[static_cast<std::size_t>(rank)]; }

RankCalls rank_calls(int rank, const Group& group, std::vector<CallRecord> calls) {
  const std::vector<int>& members = group.world_ranks();
  const auto at = std::find(members.begin(), members.end(), rank);
  return {.rank = rank, .in_group = static_cast<int>(at - members.begin()), .calls = std::move(calls), .ended = true};
}

template <class T>
at::Tensor as_bytes(const std::vector<T>& items, std::size_t padded_to) {
  const at::Tensor bytes = at::zeros({static_cast<std::int64_t>(padded_to * sizeof(T))}, at::kByte);
  copy_bytes(bytes.mutable_data_ptr(), items.data(), items.size() * sizeof(T));
  return bytes;
}

template <class T>
std::vector<T> from_bytes(const at::Tensor& bytes, std::size_t first, std::size_t count) {
  std::vector<T> items(count);
  copy_bytes(items.data(), static_cast<const char*>(bytes.const_data_ptr()) + first * sizeof(T), count * sizeof(T));
  return items;
}

}  // namespace

std::vector<CallsHash> hashes_of(const Group& group, const std::vector<CallRecord>& step_calls) {
  if (group.size() == 1) return {};
  const std::uint64_t key = fnv1a(group.str());
  std::vector<CallsHash> out{{.group = key}};
  std::map<std::pair<int, int>, std::uint64_t> messages;
  const auto add = [](std::uint64_t& sum, std::uint64_t hash) { sum = sum * 0x9e3779b97f4a7c15U + hash; };
  for (const CallRecord& r : calls_on(group, step_calls)) {
    if (!r.pairwise()) {
      add(out[0].hash, hash_of(r));
      continue;
    }
    const bool sends = r.op == Op::send;
    const int from = world_rank(group, sends ? group.rank() : r.peer);
    const int to = world_rank(group, sends ? r.peer : group.rank());
    add(messages[{from, to}], hash_of_message(key, from, to, r.seq, r.dtype, r.elements()));
  }
  for (const auto& [way, hash] : messages) out.push_back({key, hash, way.first, way.second});
  return out;
}

std::optional<Disagreement> first_disagreement(const std::vector<std::vector<CallsHash>>& by_rank) {
  struct Seen {
    int rank = 0;
    std::uint64_t hash = 0;
    bool both = false;
  };
  std::map<std::uint64_t, Seen> collectives;                     // by group
  std::map<std::tuple<std::uint64_t, int, int>, Seen> messages;  // by group, sender and receiver
  for (int rank = 0; rank < static_cast<int>(by_rank.size()); ++rank)
    for (const CallsHash& one : by_rank[static_cast<std::size_t>(rank)]) {
      if (one.from < 0) {
        const auto [at, is_new] = collectives.try_emplace(one.group, Seen{rank, one.hash});
        if (at->second.hash != one.hash) return Disagreement{one.group, at->second.rank, rank};
        continue;
      }
      const auto [at, is_new] = messages.try_emplace({one.group, one.from, one.to}, Seen{rank, one.hash});
      if (!is_new) at->second.both = at->second.hash == one.hash;
    }
  for (const auto& [way, seen] : messages)
    if (!seen.both) return Disagreement{std::get<0>(way), std::get<1>(way), std::get<2>(way)};
  return std::nullopt;
}

std::vector<std::vector<CallsHash>> gathered(const std::vector<CallsHash>& hashes, Group& control) {
  const at::Tensor counts =
      control.all_gather(at::full({1}, static_cast<std::int64_t>(hashes.size()), at::kLong)).wait();
  const auto most = static_cast<std::size_t>(counts.max().item<std::int64_t>());
  std::vector<std::vector<CallsHash>> out(static_cast<std::size_t>(control.size()));
  if (most == 0) return out;
  const at::Tensor all = control.all_gather(as_bytes(hashes, most)).wait();
  for (std::size_t r = 0; r < out.size(); ++r)
    out[r] = from_bytes<CallsHash>(all, r * most,
                                   static_cast<std::size_t>(counts[static_cast<std::int64_t>(r)].item<std::int64_t>()));
  return out;
}

std::optional<std::string> difference_with(int other, const Group& group, const std::vector<CallRecord>& step_calls,
                                           Group& control) {
  const std::vector<CallRecord> mine = calls_on(group, step_calls);
  const at::Tensor count = at::full({1}, static_cast<std::int64_t>(mine.size()), at::kLong), theirs = count.clone();
  control.batch({Message::send(count, other), Message::recv(theirs, other)}).wait();
  // One more than there are: an empty message is none.
  const auto n = static_cast<std::size_t>(theirs.item<std::int64_t>());
  const at::Tensor received = at::zeros({static_cast<std::int64_t>((n + 1) * sizeof(CallRecord))}, at::kByte);
  control.batch({Message::send(as_bytes(mine, mine.size() + 1), other), Message::recv(received, other)}).wait();
  const RankCalls own = rank_calls(control.rank(), group, mine),
                  others = rank_calls(other, group, from_bytes<CallRecord>(received, 0, n));
  return own.rank < other ? first_difference(group.str(), own, others) : first_difference(group.str(), others, own);
}

}  // namespace trireme
