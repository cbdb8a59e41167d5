#pragma once
// checks.replicas_every: do the ranks that hold the same part of a tensor hold the same bits?
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/world.hpp"
#include "trireme/files/xxh3.hpp"
#include "trireme/zero/saved_state.hpp"

namespace trireme {

/// The hash of a part of a tensor.
struct HeldPart {
  std::string what;  // "layers.1.mlp_norm.weight (model) [0:64]"
  std::string hash;
};

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

/// What is wrong with the parts of all ranks, by rank; empty: ranks that hold the same part agree.
std::string differences_of_replicas(const std::vector<std::vector<HeldPart>>& ranks);

}  // namespace trireme
