#pragma once
// From a range of a flattened tensor of a rank, as ZeRO shards it, to boxes of the unsharded tensor, through fused
// sections and padding.
#include <vector>

#include "trireme/layout/placement.hpp"

namespace trireme {

/// The range as consecutive boxes of a tensor of this shape: their elements, in row-major order and one box after the
/// other, are those of the range. At most 2 ndim - 1 boxes; none for an empty range.
std::vector<Box> boxes_of_range(const Shape& shape, Range range);

/// A box of the unsharded tensor and where its elements are in the range: the range contains a block, contiguous and in
/// row-major order, of which they are a box.
struct FlatBox {
  Box global;
  std::int64_t block_begin = 0;  // in elements from the begin of the range
  Shape block;
  Box in_block;
  bool operator==(const FlatBox&) const = default;
};

/// What elements `range` of a rank's tensor, of shape `local_shape` and with these pieces, hold of the full tensor.
/// Padding is in none of them.
std::vector<FlatBox> flat_boxes(const std::vector<Piece>& pieces, const Shape& local_shape, Range range);

}  // namespace trireme
