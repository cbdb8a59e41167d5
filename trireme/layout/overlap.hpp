#pragma once
// The elements that two slices have in common: what is copied from a tensor of one layout to one of another.
#include <optional>

#include "trireme/layout/slices.hpp"

namespace trireme {

/// The elements that two slices have in common, in the local coordinates of both tensors and in global coordinates.
struct Overlap {
  Box from_local, to_local, global;
  bool operator==(const Overlap&) const = default;
};

/// For slices with explicit bounds (from `validated` or `pieces`); nullopt when they share no element.
std::optional<Overlap> intersect(const SlicesPair& from, const SlicesPair& to);

}  // namespace trireme
