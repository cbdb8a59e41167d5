#pragma once
// checks.replicas_every: do the ranks that hold the same part of a tensor hold the same bits?
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/held_parts.hpp"
#include "trireme/comm/world.hpp"
#include "trireme/parallel/zero/saved_state.hpp"

namespace trireme {

/// For one step: add what is to be compared, then compare().
class ReplicaCheck {
 public:
  /// Hashes them now.
  void add(const std::vector<StateSlice>& slices);
  /// Collective. ComparisonFailed, on all ranks, names the tensors, the ranks that hold other bits than most, and the
  /// step.
  void compare(World& world, std::int64_t step) const;

 private:
  std::vector<HeldPart> parts_;
};

}  // namespace trireme
