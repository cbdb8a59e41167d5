#pragma once
// Resharding: which elements are copied from which rank to go from the slices of one layout to those of another.
#include <optional>
#include <vector>

#include "trireme/layout/slices.hpp"

namespace trireme {

/// The elements that two slices have in common, in the local coordinates of both tensors and in global coordinates.
struct Overlap {
  Box from_local, to_local, global;
  bool operator==(const Overlap&) const = default;
};

/// For slices with explicit bounds (from `validated` or `pieces`); nullopt when they share no element.
std::optional<Overlap> intersect(const SlicesPair& from, const SlicesPair& to);

struct Copy {
  int from_rank;
  Overlap overlap;
};

/// The copies that fill `to`, the slices of `to_rank`, from `from`, the slices of each rank; each element is copied
/// once. If several ranks hold an element, the first one from `to_rank` on, cyclically, is read: reads spread over the
/// replicas, and a rank whose layout has not changed reads its own part. Throws CheckpointError that names a region no
/// rank holds.
std::vector<Copy> plan_copies(const std::vector<std::vector<SlicesPair>>& from, const std::vector<SlicesPair>& to,
                              int to_rank);

}  // namespace trireme
