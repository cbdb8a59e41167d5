#include "trireme/parallel/zero/collective_state_dict.hpp"

#include <ATen/ops/empty.h>

#include "trireme/base/error.hpp"
#include "trireme/parallel/tensor/full_tensor.hpp"

namespace trireme {
namespace {

using GiveFull = std::function<void(const Param& param, const at::Tensor& full)>;

void give_full(const Param& param, const ParamMesh& mesh, const GiveFull& f) {
  if (!param.spec.is_tied_copy) f(param, gather_full_tensor(param.value.detach(), param.spec, mesh).value);
}

void give_part(ZeroPart& part, const GiveFull& f) {
  for (std::size_t b = part.partition.num_buckets(); b-- > 0;)  // in backward order, as are their slots
    part.params.with_whole(b, [&] {
      const std::vector<FlatSlot>& slots = part.partition.bucket(b).slots;
      for (std::size_t s = slots.size(); s-- > 0;)
        give_full(part.partition.params()[slots[s].item], part.partition.mesh(), f);
    });
}

void give_chunk(ZeroChunk& chunk, const GiveFull& f) {
  for (const auto& part : chunk.parts())
    if (part->is_trained) give_part(*part, f);
}

void give_frozen(const Zero& zero, const GiveFull& f) {
  for (ZeroPart* part : zero.parts())
    if (!part->is_trained) give_part(*part, f);
  for (const Param& param : zero.frozen()) give_full(param, zero.parts()[0]->partition.mesh(), f);
}

ZeroChunk* find_chunk(Zero& zero, int number) {
  for (std::size_t c = 0; c < zero.num_chunks(); ++c)
    if (zero.chunk(c).number() == number) return &zero.chunk(c);
  return nullptr;
}

}  // namespace

void for_each_full_param_of_stage(Zero& zero, const GiveFull& f) {
  const at::NoGradGuard no_grad;
  zero.finish_gathers();
  for (std::size_t c = 0; c < zero.num_chunks(); ++c) give_chunk(zero.chunk(c), f);
  give_frozen(zero, f);
}

void for_each_full_shard_of_stage(
    const Zero& zero, const ShardOfBucket& own,
    const std::function<void(const Param& param, const at::Tensor& local, const at::Tensor& full)>& f) {
  const at::NoGradGuard no_grad;
  for (const ZeroPart* part : zero.parts()) {
    if (!part->is_trained) continue;
    const Partition& partition = part->partition;
    for (std::size_t b = partition.num_buckets(); b-- > 0;) {
      const at::Tensor bucket = partition.shards().all_gather(own(*part, b).detach().contiguous()).wait();
      const std::vector<FlatSlot>& slots = partition.bucket(b).slots;
      for (std::size_t s = slots.size(); s-- > 0;) {
        const Param& param = partition.params()[slots[s].item];
        const at::Tensor local = bucket.narrow(0, slots[s].offset, slots[s].numel).view(param.value.sizes()).clone();
        f(param, local, gather_full_tensor(local, param.spec, partition.mesh()).value);
      }
    }
  }
}

void for_each_full_param(Zero& zero, const std::function<void(const ModelParam& param, const at::Tensor& full)>& f) {
  const at::NoGradGuard no_grad;
  zero.finish_gathers();
  const Partition& any = zero.parts()[0]->partition;
  Group& pipeline = any.mesh().mesh().group(Axis::pp);
  for (const ParamSection& section : zero.sections()) {
    std::size_t next = 0;
    const auto give = [&](at::Tensor full) {
      if (pipeline.size() > 1) full = pipeline.broadcast_(std::move(full), section.stage).wait();
      f(section.params[next++], full);
    };
    if (section.stage == pipeline.rank()) {
      const GiveFull own = [&](const Param& param, const at::Tensor& full) {
        require(next < section.params.size() && section.params[next].name == param.name, param.name,
                " is not where the list of parameters has it");
        give(full);
      };
      ZeroChunk* const chunk = find_chunk(zero, section.order);
      chunk ? give_chunk(*chunk, own) : give_frozen(zero, own);
      continue;
    }
    for (const ModelParam& param : section.params)
      give(at::empty(param.shape, any.tensor_options().dtype(param.dtype)));
  }
}

std::map<std::string, at::Tensor> collective_state_dict(Zero& zero, StateOn where) {
  std::map<std::string, at::Tensor> state;
  const bool wanted = where == StateOn::all_ranks || zero.parts()[0]->partition.mesh().mesh().rank() == 0;
  for_each_full_param(zero, [&](const ModelParam& param, const at::Tensor& full) {
    if (wanted) state[param.name] = full.cpu();
  });
  return state;
}

}  // namespace trireme
