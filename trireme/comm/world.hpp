#pragma once
// All ranks of a job, seen from one of them: the factory of groups.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/calls/comm_options.hpp"
#include "trireme/comm/calls/flight_recorder.hpp"
#include "trireme/comm/group.hpp"

namespace trireme {

class World;

/// The comparison of all calls of a step, in progress.
class [[nodiscard]] StepCheck {
 public:
  /// Throws unless they matched on all ranks.
  void finish() &&;

 private:
  friend class World;
  StepCheck(World& world, std::vector<Group*> groups) : world_(world), groups_(std::move(groups)) {}

  World& world_;
  std::vector<Group*> groups_;
  std::optional<Pending> sum_;  // of the checksums of all ranks
};

class World {
 public:
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const CommOptions& options() const { return options_; }
  FlightRecorder& recorder() const { return *recorder_; }

  /// A group of these world ranks, including ours. All its members must call this, with their groups in the same order;
  /// other ranks need not. A name with its ranks identifies one group: creating it twice is an error.
  std::unique_ptr<Group> make_group(const std::string& name, const std::vector<int>& world_ranks);

  /// The group used by end_step. Created at first use, or here: its creation is a collective call too.
  Group& control();

  /// Collective, at the end of a step: throws unless all calls of the step matched (depending on the check mode).
  void end_step(const std::vector<Group*>& groups) { start_step_check(groups).finish(); }
  /// The same in two parts: following calls belong to the next step.
  StepCheck start_step_check(const std::vector<Group*>& groups);

 protected:
  World(int rank, int size, CommOptions options, std::shared_ptr<FlightRecorder> recorder);

  virtual std::unique_ptr<Group> connect(Membership members) = 0;
  /// Group::only_device() of its groups.
  virtual std::optional<at::Device> only_device() const { return std::nullopt; }
  /// A group of all ranks for host tensors, used for checks.
  virtual std::unique_ptr<Group> connect_control(Membership members) { return connect(std::move(members)); }

  const std::shared_ptr<FlightRecorder>& shared_recorder() const { return recorder_; }

 private:
  Membership members(const std::string& name, const std::vector<int>& world_ranks);
  friend class StepCheck;
  [[noreturn]] void name_the_mismatch(const std::vector<Group*>& groups);

  const int rank_, size_;
  const CommOptions options_;
  const std::shared_ptr<FlightRecorder> recorder_;
  std::vector<std::string> made_;
  std::unique_ptr<Group> control_;
};

}  // namespace trireme
