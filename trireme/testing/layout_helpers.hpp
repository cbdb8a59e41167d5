#pragma once
// Helpers for tests of layout/.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <rapidcheck.h>

#include "trireme/layout/placement.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {

/// A uniform random number from `low` to `high`, inclusive. (RapidCheck's inRange prefers values near `low`.)
inline int pick(int low, int high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high + 1)); }

inline bool toss() { return pick(0, 1) == 1; }

// Note [Any placement]: for a given shape and grid, each axis cuts one dim or none; a dim is cut plainly if divisible,
// else padded, or is a concatenation of sections with any allowed number of granules.
inline Placement any_placement(const Shape& shape, const Grid& grid) {
  std::vector<Axis> axes{Axis::dp, Axis::cp, Axis::tp};
  if (toss()) std::ranges::reverse(axes);
  Placement placement;
  std::vector<int> degree(shape.size(), 1), last_cut(shape.size(), -1);
  for (Axis axis : axes) {
    const int dim = pick(-1, static_cast<int>(shape.size()) - 1);
    if (dim < 0) continue;
    last_cut[dim] = static_cast<int>(placement.cuts.size());
    degree[dim] *= grid.degree(axis);
    placement.cuts.push_back({axis, dim});
  }
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (last_cut[dim] < 0) continue;
    Cut& cut = placement.cuts[last_cut[dim]];
    if (toss()) {
      if (shape[dim] % degree[dim] != 0 || toss()) cut.padded_to = pick(1, 5);
      continue;
    }
    for (std::int64_t left = shape[dim]; left > 0;) {
      const std::int64_t size = pick(1, static_cast<int>(left));
      std::vector<std::int64_t> granules;
      for (std::int64_t u = 1; u <= size; ++u)
        if (size % u == 0 && (u % degree[dim] == 0 || degree[dim] % u == 0)) granules.push_back(u);
      cut.sections.push_back({size, granules[pick(0, static_cast<int>(granules.size()) - 1)]});
      left -= size;
    }
  }
  return placement;
}

inline Shape any_shape() {
  Shape shape(pick(0, 3));
  for (std::int64_t& size : shape) size = pick(1, 12);
  return shape;
}

inline Grid any_grid() {
  const auto degree = [] { return pick(1, 3); };
  const Degrees degrees{.pp = pick(1, 2), .dp = degree(), .cp = degree(), .tp = degree()};
  const std::vector<const char*> orders{"tp-cp-dp-pp", "pp-dp-cp-tp", "cp-tp-pp-dp"};
  return Grid::dense(degrees, orders[pick(0, 2)]);
}

/// visit(index) for each element of a box in a row-major array.
template <class Visit>
void for_each_index(const Box& box, const Shape& shape, const Visit& visit, std::size_t dim = 0,
                    std::int64_t index = 0) {
  if (dim == box.size()) return visit(index);
  for (std::int64_t at = box[dim].begin; at < box[dim].end; ++at)
    for_each_index(box, shape, visit, dim + 1, index * shape[dim] + at);
}

/// Of the elements of a box in a row-major array.
inline std::vector<std::int64_t> indices(const Box& box, const Shape& shape) {
  std::vector<std::int64_t> list;
  for_each_index(box, shape, [&](std::int64_t index) { list.push_back(index); });
  return list;
}

}  // namespace trireme
