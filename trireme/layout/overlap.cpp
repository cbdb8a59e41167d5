#include "trireme/layout/overlap.hpp"

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

}  // namespace

std::optional<Overlap> intersect(const SlicesPair& from, const SlicesPair& to) {
  const Box from_global = box_of(from.global_slices), to_global = box_of(to.global_slices);
  const std::optional<Box> common = common_box(from_global, to_global);
  if (!common) return std::nullopt;
  return Overlap{to_local(*common, box_of(from.local_slices), from_global),
                 to_local(*common, box_of(to.local_slices), to_global), *common};
}

}  // namespace trireme
