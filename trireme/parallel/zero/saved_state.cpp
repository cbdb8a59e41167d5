#include "trireme/parallel/zero/saved_state.hpp"

#include "trireme/layout/saver_of.hpp"
#include "trireme/parallel/state/shard_slices.hpp"

namespace trireme {
namespace {

std::vector<ShardTensor> tensors_of_shard(const ShardedOptimizer& optimizer, std::size_t bucket) {
  std::vector<ShardTensor> out{{"weight", optimizer.master(bucket)}};
  for (std::size_t k = 0; k < optimizer.state_names().size(); ++k)
    out.push_back({optimizer.state_names()[k], optimizer.state(bucket, k)});
  return out;
}

/// What this rank's shard of bucket b holds.
std::vector<ShardPart> parts_of_shard(const Partition& partition, std::size_t b) {
  std::vector<ShardPart> out;
  for (const FlatPiece& piece : partition.own_pieces(b))
    out.push_back({&partition.params()[piece.item], piece.of_item, piece.offset});
  return out;
}

/// A parameter that no part holds.
ShardPart whole(const Param& param) { return {&param, {0, param.value.numel()}}; }
std::vector<ShardTensor> whole_tensor(const Param& param, const char* kind) {
  return {{kind, param.value.detach().view({-1})}};
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
      for (const ShardPart& held : parts_of_shard(partition, b))
        add_slices(held, held_pieces(*held.param, &partition.mesh()), tensors(*part, b), out);
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
      const Range mine = range_of_replica(partition.own(b).size(), partition.replicas());
      for (const ShardPart& held : parts_of_shard(partition, b))
        add_slices(within(held, mine), saved_pieces(*held.param, &partition.mesh()), tensors, out);
    }
  }
  for (const Param& param : zero.frozen()) {
    const ParamMesh mesh = zero.parts()[0]->partition.mesh();
    if (saver_of(param.name, mesh.sum_group(param.spec).world_ranks()) != mesh.mesh().rank()) continue;
    add_slices(whole(param), saved_pieces(param, &mesh), whole_tensor(param, "weight"), out);
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
    add_slices(whole(param), held_pieces(param, &mesh), whole_tensor(param, "weight"), out);
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
      add_slices(whole(param), held_pieces(param, &part->partition.mesh()), whole_tensor(param, "model"), out);
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
