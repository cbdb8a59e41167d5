#include "trireme/comm/world.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <numeric>
#include <thread>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/mismatch.hpp"
#include "trireme/comm/self_group.hpp"

namespace trireme {

World::World(int rank, int size, CommOptions options, std::shared_ptr<FlightRecorder> recorder)
    : rank_(rank), size_(size), options_(std::move(options)), recorder_(std::move(recorder)) {
  require(size >= 1 && rank >= 0 && rank < size, "rank ", rank, " of a world of ", size);
}

Membership World::members(const std::string& name, const std::vector<int>& world_ranks) {
  Membership members{name, -1, world_ranks};
  std::vector<int> sorted = world_ranks;
  std::sort(sorted.begin(), sorted.end());
  require<ConfigError>(!sorted.empty() && sorted.front() >= 0 && sorted.back() < size_, "group ", members.str(),
                       ": its ranks must be from 0 to ", size_ - 1);
  require<ConfigError>(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "group ", members.str(),
                       ": a rank stands in it twice");
  const auto me = std::find(world_ranks.begin(), world_ranks.end(), rank_);
  require<ConfigError>(me != world_ranks.end(), "group ", members.str(), ": rank ", rank_, " is not in it\n",
                       "  fix: only its members make a group");
  members.rank = static_cast<int>(me - world_ranks.begin());
  // Two groups with the same name would read each other's messages.
  std::string key = name;
  for (int r : world_ranks) key += text(",", r);
  require<ConfigError>(std::find(made_.begin(), made_.end(), key) == made_.end(), "group ", members.str(),
                       " was made before");
  made_.push_back(key);
  return members;
}

std::unique_ptr<Group> World::make_group(const std::string& name, const std::vector<int>& world_ranks) {
  Membership who = members(name, world_ranks);
  if (who.size() == 1) return std::make_unique<SelfGroup>(std::move(who), recorder_, options_);
  return connect(std::move(who));
}

Group& World::control() {
  if (control_ == nullptr) {
    std::vector<int> all(static_cast<std::size_t>(size_));
    std::iota(all.begin(), all.end(), 0);
    Membership who = members("step", all);
    if (size_ == 1)
      control_ = std::make_unique<SelfGroup>(std::move(who), recorder_, options_);
    else
      control_ = connect_control(std::move(who));
  }
  return *control_;
}

void World::end_step(const std::vector<Group*>& groups) {
  if (options_.check == CheckMode::strict)
    for (Group* group : groups) group->end_step();
  if (options_.check == CheckMode::fast && size_ > 1) {
    // Read before the call that compares it, which is recorded like any other.
    const at::Tensor sum = at::full({1}, static_cast<std::int64_t>(recorder_->checksum()), at::kLong);
    control().all_reduce_(sum).wait();
    if (sum.item<std::int64_t>() != 0) name_the_mismatch(groups);
  }
  recorder_->start_step();
}

void World::name_the_mismatch(const std::vector<Group*>& groups) {
  // All ranks know that there is a mismatch, so all arrive here and exchange the calls of the step.
  const std::vector<CallRecord> mine = recorder_->step_calls();
  Group& group = control();
  const at::Tensor counts = group.all_gather(at::full({1}, static_cast<std::int64_t>(mine.size()), at::kLong)).wait();
  const std::int64_t most = counts.max().item<std::int64_t>();
  const auto bytes = static_cast<std::int64_t>(sizeof(CallRecord));
  const at::Tensor padded = at::zeros({most * bytes}, at::kByte);
  std::memcpy(padded.mutable_data_ptr(), mine.data(), mine.size() * sizeof(CallRecord));
  const at::Tensor all = group.all_gather(padded).wait();
  // Ranks that share a group with this one: the others compare themselves.
  std::map<int, std::vector<CallRecord>> calls;
  for (const Group* g : groups)
    for (int rank : g->world_ranks()) {
      if (calls.contains(rank)) continue;
      std::vector<CallRecord>& one = calls[rank];
      one.resize(static_cast<std::size_t>(counts[rank].item<std::int64_t>()));
      std::memcpy(one.data(), static_cast<const char*>(all.const_data_ptr()) + rank * most * bytes,
                  one.size() * sizeof(CallRecord));
    }
  if (auto found = first_difference(calls)) throw CommError(CommError::Kind::hang_or_mismatch, *found);
  // The mismatch is between other ranks, which report it: give them time to be first. Or it is in something that is not
  // recorded: the rows per rank of an uneven all_to_all, or calls beyond the limit per step.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  throw CommError(
      CommError::Kind::hang_or_mismatch,
      text("in ", recorder_->tag().str(),
           " the ranks did not make the same calls, and those that share a group with rank ", rank_,
           " show no difference\n  another rank says which call it is, if it is one between others; else look at the ",
           "row counts of an uneven all_to_all"));
}

}  // namespace trireme
