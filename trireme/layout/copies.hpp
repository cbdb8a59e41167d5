#pragma once
// From slices of one layout to slices of another: which elements are copied from where.
#include <optional>
#include <vector>

#include "trireme/layout/slices.hpp"

namespace trireme {

/// The elements that two slices have in common, in the coordinates of either tensor and of the whole.
struct Overlap {
  Box from_local, to_local, global;
  bool operator==(const Overlap&) const = default;
};

/// Of slices with all numbers spelt out (`validated`, `pieces`); nullopt where they share no element.
std::optional<Overlap> intersect(const SlicesPair& from, const SlicesPair& to);

struct Copy {
  int from_rank;
  Overlap overlap;
};

/// Copies that fill `to`, the slices of `to_rank`, from `from`, the slices of each rank; every element once.
/// Of several ranks that keep an element, the first from `to_rank` on, cyclically, is read: readers spread over
/// replicas, and a rank whose layout has not changed reads its own part. CheckpointError names a region that nobody
/// keeps.
std::vector<Copy> plan_copies(const std::vector<std::vector<SlicesPair>>& from, const std::vector<SlicesPair>& to,
                              int to_rank);

}  // namespace trireme
