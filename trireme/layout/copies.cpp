#include "trireme/layout/copies.hpp"

#include <algorithm>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/layout/box_copy.hpp"

namespace trireme {
namespace {

std::optional<Box> common_box(const Box& a, const Box& b) {
  require<CheckpointError>(a.size() == b.size(), "slices of tensors with ", a.size(), " and ", b.size(), " dims");
  return intersection(a, b);
}

/// The local coordinates of the global box `part`, in a tensor that holds the global box `global` at `local`.
Box to_local(const Box& part, const Box& local, const Box& global) {
  require(local.size() == global.size(), "slices with ", local.size(), " local and ", global.size(), " global dims");
  Box result;
  for (std::size_t dim = 0; dim < part.size(); ++dim) {
    const std::int64_t shift = local[dim].begin - global[dim].begin;
    result.push_back({part[dim].begin + shift, part[dim].end + shift});
  }
  return result;
}

/// Appends `box` minus `hole`, which lies inside it, as disjoint boxes.
void append_difference(Box box, const Box& hole, std::vector<Box>& boxes) {
  for (std::size_t dim = 0; dim < box.size(); ++dim) {
    const auto append_slab = [&](Range slab) {
      if (slab.size() == 0) return;
      boxes.push_back(box);
      boxes.back()[dim] = slab;
    };
    append_slab({box[dim].begin, hole[dim].begin});
    append_slab({hole[dim].end, box[dim].end});
    box[dim] = hole[dim];
  }
}

}  // namespace

std::optional<Overlap> intersect(const SlicesPair& from, const SlicesPair& to) {
  const Box from_global = box_of(from.global_slices), to_global = box_of(to.global_slices);
  const std::optional<Box> common = common_box(from_global, to_global);
  if (!common) return std::nullopt;
  return Overlap{to_local(*common, box_of(from.local_slices), from_global),
                 to_local(*common, box_of(to.local_slices), to_global), *common};
}

std::vector<Copy> plan_copies(const std::vector<std::vector<SlicesPair>>& from, const std::vector<SlicesPair>& to,
                              int to_rank) {
  std::vector<Copy> copies;
  for (const SlicesPair& wanted : to) {
    const Box wanted_local = box_of(wanted.local_slices), wanted_global = box_of(wanted.global_slices);
    std::vector<Box> missing;  // disjoint boxes in global coordinates
    if (std::ranges::all_of(wanted_global, [](const Range& range) { return range.size() > 0; }))
      missing.push_back(wanted_global);
    for (std::size_t i = 0; i < from.size() && !missing.empty(); ++i) {
      const std::size_t from_rank = (static_cast<std::size_t>(to_rank) + i) % from.size();
      for (const SlicesPair& source : from[from_rank]) {
        const Box source_global = box_of(source.global_slices);
        std::vector<Box> still_missing;
        for (const Box& box : missing) {
          const std::optional<Box> common = common_box(source_global, box);
          if (!common) {
            still_missing.push_back(box);
            continue;
          }
          copies.push_back({static_cast<int>(from_rank),
                            {to_local(*common, box_of(source.local_slices), source_global),
                             to_local(*common, wanted_local, wanted_global), *common}});
          append_difference(box, *common, still_missing);
        }
        missing = std::move(still_missing);
      }
    }
    require<CheckpointError>(missing.empty(), "elements ", missing.empty() ? "" : str(missing.front()),
                             " of the whole tensor, wanted by rank ", to_rank, ": none of the ", from.size(),
                             " sources keeps them");
  }
  return copies;
}

}  // namespace trireme
