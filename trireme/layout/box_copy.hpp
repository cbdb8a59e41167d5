#pragma once
// Copies of a box of elements between two dense arrays that are boxes of one tensor.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "trireme/layout/slices.hpp"

namespace trireme {

/// The elements that two boxes of one tensor have in common; nullopt if there are none. Two boxes of a 0-dim tensor
/// have its one element.
std::optional<Box> intersection(const Box& a, const Box& b);

/// Two of the boxes, by their places in the list, that have an element in common; nullopt if no two have.
std::optional<std::pair<std::size_t, std::size_t>> overlapping(std::span<const Box> boxes);

/// `box` in coordinates that count from the begin of `outer`.
Box relative_to(const Box& box, const Box& outer);

/// Row-major arrays of the elements of `from_box` and `to_box`: the elements of `common`, which is inside both, are
/// copied. InternalError if a size does not match its box.
void copy_box(std::span<const std::byte> from, const Box& from_box, std::span<std::byte> to, const Box& to_box,
              const Box& common, std::size_t element_bytes);

/// Where the elements of `inner` are in the row-major array of `outer`, if they are contiguous there: the number of
/// elements before them. nullopt if they are not contiguous, or not all in it.
std::optional<std::int64_t> contiguous_offset(const Box& inner, const Box& outer);

}  // namespace trireme
