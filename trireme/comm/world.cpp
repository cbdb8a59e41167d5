#include "trireme/comm/world.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <thread>

#include <ATen/ops/full.h>

#include "trireme/base/error.hpp"
#include "trireme/base/fnv.hpp"
#include "trireme/comm/disagreement.hpp"
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
                       ": a rank is listed twice");
  const auto me = std::find(world_ranks.begin(), world_ranks.end(), rank_);
  require<ConfigError>(me != world_ranks.end(), "group ", members.str(), ": rank ", rank_, " is not in it\n",
                       "  fix: only its members make a group");
  members.rank = static_cast<int>(me - world_ranks.begin());
  // Two groups with the same name would read each other's messages.
  std::string key = name;
  for (int r : world_ranks) key += text(",", r);
  require<ConfigError>(std::find(made_.begin(), made_.end(), key) == made_.end(), "group ", members.str(),
                       " already exists");
  made_.push_back(key);
  return members;
}

std::unique_ptr<Group> World::make_group(const std::string& name, const std::vector<int>& world_ranks) {
  Membership who = members(name, world_ranks);
  if (who.size() == 1) return std::make_unique<SelfGroup>(std::move(who), recorder_, options_, only_device());
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

StepCheck World::start_step_check(const std::vector<Group*>& groups) {
  StepCheck check(*this, groups);
  if (options_.check == CheckMode::strict)
    for (Group* group : groups) group->end_step();
  // The checksum is read before the call that compares it, which is recorded like any other.
  if (options_.check == CheckMode::fast && size_ > 1) {
    const auto checksum = static_cast<std::int64_t>(recorder_->checksum());
    check.sum_.emplace(control().all_reduce_(at::full({1}, checksum, at::kLong)));
  }
  recorder_->start_step();
  return check;
}

void StepCheck::finish() && {
  if (sum_ && std::move(*sum_).wait().item<std::int64_t>() != 0) world_.name_the_mismatch(groups_);
  world_.recorder().drop_last_step();
}

/// All ranks know that there is a mismatch, so all arrive here and exchange hashes of their calls; then the two ranks
/// of the first difference exchange the calls.
void World::name_the_mismatch(const std::vector<Group*>& groups) {
  const std::vector<CallRecord> mine = until_step_end(recorder_->step_calls());
  std::vector<CallsHash> hashes;
  for (const Group* group : groups) std::ranges::copy(hashes_of(*group, mine), std::back_inserter(hashes));
  const std::optional<Disagreement> found = first_disagreement(gathered(hashes, control()));
  if (found && (found->a == rank_ || found->b == rank_))
    for (const Group* group : groups) {
      if (fnv1a(group->str()) != found->group) continue;
      const int other = found->a == rank_ ? found->b : found->a;
      if (const auto difference = difference_with(other, *group, mine, control()))
        throw CommError(CommError::Kind::hang_or_mismatch, *difference);
    }
  // The ranks of the difference report it: give them time to be first. Or it is in something that is not recorded: the
  // rows per rank of an uneven all_to_all, or calls beyond the limit per step.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::string who =
      found ? text("; ranks ", found->a, " and ", found->b, " report which call it is")
            : text(", and their records show no difference\n  fix: check the row counts of an ", "uneven all_to_all");
  throw CommError(CommError::Kind::hang_or_mismatch,
                  text("in ", recorder_->tag().str(), " the ranks did not make the same calls", who));
}

}  // namespace trireme
