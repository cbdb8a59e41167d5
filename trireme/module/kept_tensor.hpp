#pragma once
// What a rank keeps of the parameters of a module, and which of it it saves, counts and loads.
#include <span>
#include <vector>

#include "trireme/comm/group.hpp"
#include "trireme/parallel/state/shard_slices.hpp"

namespace trireme {

/// A tensor of this rank that an optimizer updates as one: a parameter itself, or a flat shard of several.
struct KeptTensor {
  at::Tensor tensor;
  std::vector<ShardPart> parts;
  Group* replicas = nullptr;  // the ranks that keep the same; null: no other one does
};

/// All parameters of a module, each once. Without a mesh they are tensors like those of any module, also in a Layer,
/// whose padding is then a part of them.
std::vector<Param> distinct_params(const torch::nn::Module& module, const ParamMesh* mesh);
/// Whether this rank has all of it, and nothing else.
bool has_full_value(const Param& param);
/// A parameter of which this rank has a part, whole. Collective if it is cut over ranks.
at::Tensor full_value(const Param& param, const ParamMesh& mesh);

/// Those of a module that is not sharded. `same`: the ranks that have the same parameters, without a mesh. The result
/// refers to `params`.
std::vector<KeptTensor> whole_tensors(const std::vector<Param>& params, const ParamMesh* mesh, Group& same);

// `tensors`: with as many elements as the kept one, which are views of in the slices: its values, its gradient, a state
// of the optimizer. `mesh`: null if all parameters are whole on every rank, apart from shards.

/// Everything that is in them.
std::vector<StateSlice> held_slices(const KeptTensor& kept, std::span<const ShardTensor> tensors,
                                    const ParamMesh* mesh);
/// Over all ranks each element of each parameter once.
std::vector<StateSlice> saved_slices(const KeptTensor& kept, std::span<const ShardTensor> tensors,
                                     const ParamMesh* mesh);

/// What saved_slices() has of the gradients; kept tensors without one have none.
std::vector<at::Tensor> counted_gradients(const std::vector<KeptTensor>& kept, const ParamMesh* mesh);

}  // namespace trireme
