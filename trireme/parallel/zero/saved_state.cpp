#include "trireme/parallel/zero/saved_state.hpp"

#include "trireme/base/error.hpp"
#include "trireme/layout/flat_boxes.hpp"
#include "trireme/layout/saver_of.hpp"

namespace trireme {
namespace {

/// The tensors of one parameter in a shard, by kind.
struct ShardTensor {
  std::string kind;
  at::Tensor flat;  // the whole shard
};

std::vector<ShardTensor> tensors_of_shard(const ShardedOptimizer& optimizer, std::size_t bucket) {
  std::vector<ShardTensor> out{{"weight", optimizer.master(bucket)}};
  for (std::size_t k = 0; k < optimizer.state_names().size(); ++k)
    out.push_back({optimizer.state_names()[k], optimizer.state(bucket, k)});
  return out;
}

/// Elements `range` of this rank's part of a parameter, whose first one is element `offset` of the flat tensors.
void add_slices(const Param& param, const std::vector<Piece>& pieces, Range range, std::int64_t offset,
                const std::vector<ShardTensor>& tensors, std::vector<StateSlice>& out) {
  for (const FlatBox& box : flat_boxes(pieces, param.value.sizes().vec(), range))
    for (const ShardTensor& tensor : tensors)
      out.push_back(
          {.name = param.name,
           .kind = tensor.kind,
           .shape = param.spec.shape,
           .box = box.global,
           .values = box_view(tensor.flat.narrow(0, offset + box.block_begin, numel(box.block)).view(box.block),
                              box.in_block)});
}

/// The pieces of a parameter that this rank saves rather than another one along the model axes.
std::vector<Piece> own_pieces_of(const Param& param, const ParamMesh& mesh) {
  std::vector<Piece> own;
  if (param.spec.is_tied_copy) return own;
  const std::vector<Piece> held = mesh.pieces(param.spec);
  for (std::size_t i = 0; i < held.size(); ++i)
    if (saver_of(param.name, mesh.holders(param.spec, i)) == mesh.mesh().rank()) own.push_back(held[i]);
  return own;
}

/// The part of the shard of bucket b that this one of its replicas saves.
Range range_of_replica(const Partition& partition, std::size_t b) {
  const std::int64_t size = partition.own(b).size(), replicas = partition.replicas().size(),
                     replica = partition.replicas().rank();
  return {size * replica / replicas, size * (replica + 1) / replicas};
}

enum class Replicas { all, first };  // which of the ranks with the same values

/// Of all that this rank's shards hold, without what other ranks have.
template <class TensorsOfBucket>
std::vector<StateSlice> slices_of_shards(const Zero& zero, Replicas replicas, const TensorsOfBucket& tensors) {
  std::vector<StateSlice> out;
  for (const ZeroPart* part : zero.parts()) {
    const Partition& partition = part->partition;
    if (replicas == Replicas::first && partition.replicas().rank() != 0) continue;
    for (std::size_t b = partition.num_buckets(); b-- > 0;)
      for (const FlatPiece& piece : partition.own_pieces(b)) {
        const Param& param = partition.params()[piece.item];
        add_slices(param, partition.mesh().pieces(param.spec), piece.of_item, piece.offset, tensors(*part, b), out);
      }
  }
  return out;
}

}  // namespace

std::vector<StateSlice> slices_to_save(const Zero& zero) {
  std::vector<StateSlice> out;
  for (const ZeroPart* part : zero.parts()) {
    const Partition& partition = part->partition;
    for (std::size_t b = partition.num_buckets(); b-- > 0;) {  // buckets are in backward order
      const std::vector<ShardTensor> tensors = tensors_of_shard(part->optimizer, b);
      const Range mine = range_of_replica(partition, b);
      for (const FlatPiece& piece : partition.own_pieces(b)) {
        const Range in_shard{std::max(piece.offset, mine.begin),
                             std::min(piece.offset + piece.of_item.size(), mine.end)};
        if (in_shard.begin >= in_shard.end) continue;
        const Param& param = partition.params()[piece.item];
        const std::int64_t shift = piece.of_item.begin - piece.offset;
        add_slices(param, own_pieces_of(param, partition.mesh()), {in_shard.begin + shift, in_shard.end + shift},
                   in_shard.begin, tensors, out);
      }
    }
  }
  for (const Param& param : zero.frozen()) {
    const ParamMesh mesh = zero.parts()[0]->partition.mesh();
    if (saver_of(param.name, mesh.sum_group(param.spec).world_ranks()) != mesh.mesh().rank()) continue;
    const at::Tensor flat = param.value.detach().view({-1});
    add_slices(param, own_pieces_of(param, mesh), {0, flat.numel()}, 0, {{"weight", flat}}, out);
  }
  return out;
}

namespace {

std::vector<StateSlice> held_slices(const Zero& zero, Replicas replicas) {
  std::vector<StateSlice> out = slices_of_shards(zero, replicas, [](const ZeroPart& part, std::size_t bucket) {
    return tensors_of_shard(part.optimizer, bucket);
  });
  for (const Param& param : zero.frozen()) {
    const ParamMesh& mesh = zero.parts()[0]->partition.mesh();
    if (replicas == Replicas::first && mesh.sum_group(param.spec).rank() != 0) continue;
    const at::Tensor flat = param.value.detach().view({-1});
    add_slices(param, mesh.pieces(param.spec), {0, flat.numel()}, 0, {{"weight", flat}}, out);
  }
  return out;
}

/// From the first rank of the group.
void broadcast_values(Group& group, const at::Tensor& values) {
  if (group.size() > 1 && values.numel() > 0) group.broadcast_(values, 0).wait();
}

}  // namespace

std::vector<StateSlice> slices_to_load(const Zero& zero) { return held_slices(zero, Replicas::all); }

std::vector<StateSlice> slices_to_read(const Zero& zero) { return held_slices(zero, Replicas::first); }

void spread_to_replicas(const Zero& zero) {
  const at::NoGradGuard no_grad;
  for (const ZeroPart* part : zero.parts())
    for (std::size_t b = 0; b < part->partition.num_buckets(); ++b)
      for (const ShardTensor& tensor : tensors_of_shard(part->optimizer, b))
        broadcast_values(part->partition.replicas(), tensor.flat);
  for (const Param& param : zero.frozen())
    broadcast_values(zero.parts()[0]->partition.mesh().sum_group(param.spec), param.value.detach());
}

std::vector<StateSlice> gradient_slices(const Zero& zero) {
  return slices_of_shards(zero, Replicas::all, [](const ZeroPart& part, std::size_t bucket) {
    return part.is_trained ? std::vector<ShardTensor>{{"gradient", part.gradients.shard(bucket).detach()}}
                           : std::vector<ShardTensor>();
  });
}

std::vector<StateSlice> kept_weight_slices(const Zero& zero) {
  std::vector<StateSlice> out;
  for (const ZeroPart* part : zero.parts())
    for (const Param& param : part->partition.params()) {
      const at::Tensor value = param.value.detach();
      if (value.numel() == 0 || value.storage().nbytes() == 0) continue;  // gathered only while its unit runs
      add_slices(param, part->partition.mesh().pieces(param.spec), {0, value.numel()}, 0, {{"model", value.view({-1})}},
                 out);
    }
  return out;
}

void state_is_loaded(Zero& zero, std::int64_t optimizer_steps) {
  for (ZeroPart* part : zero.parts()) {
    part->optimizer.continue_after(optimizer_steps);
    for (std::size_t b = part->partition.num_buckets(); b-- > 0;) part->params.gather_kept(b);
  }
  zero.finish_gathers();
}

}  // namespace trireme
