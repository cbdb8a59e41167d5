#include "trireme/parallel/state/shard_slices.hpp"

#include <algorithm>

#include "trireme/layout/flat_boxes.hpp"
#include "trireme/layout/saver_of.hpp"

namespace trireme {

std::vector<Piece> held_pieces(const Param& param, const ParamMesh* mesh) {
  return mesh != nullptr ? mesh->pieces(param.spec) : pieces({}, param.value.sizes().vec(), Grid::dense({}), 0);
}

std::vector<Piece> saved_pieces(const Param& param, const ParamMesh* mesh) {
  std::vector<Piece> own;
  if (param.spec.is_tied_copy) return own;
  const std::vector<Piece> held = held_pieces(param, mesh);
  if (mesh == nullptr) return held;
  for (std::size_t i = 0; i < held.size(); ++i)
    if (saver_of(param.name, mesh->holders(param.spec, i)) == mesh->mesh().rank()) own.push_back(held[i]);
  return own;
}

void add_slices(const ShardPart& part, const std::vector<Piece>& pieces, std::span<const ShardTensor> tensors,
                std::vector<StateSlice>& out) {
  for (const FlatBox& box : flat_boxes(pieces, part.param->value.sizes().vec(), part.range))
    for (const ShardTensor& tensor : tensors)
      out.push_back(
          {.name = part.param->name,
           .kind = tensor.kind,
           .shape = part.param->spec.shape,
           .box = box.global,
           .values = box_view(tensor.flat.narrow(0, part.offset + box.block_begin, numel(box.block)).view(box.block),
                              box.in_block)});
}

Range range_of_replica(std::int64_t size, const Group& replicas) {
  const std::int64_t count = replicas.size(), rank = replicas.rank();
  return {size * rank / count, size * (rank + 1) / count};
}

ShardPart within(const ShardPart& part, Range of_shard) {
  const std::int64_t shift = part.range.begin - part.offset;
  const std::int64_t begin = std::clamp(of_shard.begin + shift, part.range.begin, part.range.end),
                     end = std::clamp(of_shard.end + shift, begin, part.range.end);
  return {part.param, {begin, end}, begin - shift};
}

}  // namespace trireme
