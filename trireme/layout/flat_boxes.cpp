#include "trireme/layout/flat_boxes.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

Shape sizes_of(const Box& box) {
  Shape sizes;
  for (const Range& side : box) sizes.push_back(side.size());
  return sizes;
}

/// The largest box that begins with element `range.begin`, has contiguous elements and ends within the range.
Box first_box(const Shape& shape, Range range) {
  // Elements behind dim d, and the dim that the box extends along: as far out as the range begins at a whole row.
  std::int64_t row = 1;
  std::size_t dim = shape.size();
  while (dim-- > 0) {
    const std::int64_t rows = row * shape[dim];
    if (dim == 0 || range.begin % rows != 0 || range.size() < rows) break;
    row = rows;
  }
  Box box(shape.size());
  for (std::size_t d = dim + 1; d < shape.size(); ++d) box[d] = {0, shape[d]};
  std::int64_t outer = range.begin / row;
  const std::int64_t begin = outer % shape[dim];
  box[dim] = {begin, std::min(shape[dim], begin + range.size() / row)};
  outer /= shape[dim];
  for (std::size_t d = dim; d-- > 0; outer /= shape[d]) box[d] = {outer % shape[d], outer % shape[d] + 1};
  return box;
}

/// The part of the piece inside `block` of the local tensor: in global coordinates, and relative to the block.
std::optional<std::pair<Box, Box>> intersection(const Piece& piece, const Box& block) {
  Box global = box_of(piece.slices.global_slices), local = box_of(piece.slices.local_slices);
  for (std::size_t d = 0; d < local.size(); ++d) {
    const Range inside{std::max(local[d].begin, block[d].begin), std::min(local[d].end, block[d].end)};
    if (inside.begin >= inside.end) return std::nullopt;
    const std::int64_t shift = global[d].begin - local[d].begin;
    global[d] = {inside.begin + shift, inside.end + shift};
    local[d] = {inside.begin - block[d].begin, inside.end - block[d].begin};
  }
  return std::pair{global, local};
}

}  // namespace

std::vector<Box> boxes_of_range(const Shape& shape, Range range) {
  require(0 <= range.begin && range.begin <= range.end && range.end <= numel(shape), "range ", range.begin, " to ",
          range.end, " of a tensor of ", numel(shape), " elements");
  std::vector<Box> boxes;
  if (range.size() == 0) return boxes;
  if (shape.empty()) return {{}};
  while (range.size() > 0) {
    boxes.push_back(first_box(shape, range));
    range.begin += numel(sizes_of(boxes.back()));
  }
  return boxes;
}

std::vector<FlatBox> flat_boxes(const std::vector<Piece>& pieces, const Shape& local_shape, Range range) {
  std::vector<FlatBox> out;
  std::int64_t begin = 0;
  for (const Box& block : boxes_of_range(local_shape, range)) {
    const Shape sizes = sizes_of(block);
    for (const Piece& piece : pieces)
      if (const auto inside = intersection(piece, block)) out.push_back({inside->first, begin, sizes, inside->second});
    begin += numel(sizes);
  }
  return out;
}

}  // namespace trireme
