#pragma once
// What nanotron calls things.
#include <vector>

#include "trireme/nn/init_scope.hpp"
#include "trireme/nn/recompute.hpp"
#include "trireme/parallel/pipeline/pipeline_engine.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"

namespace trireme::compat {

/// A group of any world ranks (Mesh::group_of_ranks).
inline Group& world_ranks_to_pg(const ParallelContext& context, const std::vector<int>& world_ranks) {
  return context.mesh().group_of_ranks(world_ranks);
}
inline WorldRankMatrix world_rank_matrix(const ParallelContext& context) {
  return context.mesh().grid().world_rank_matrix();
}
inline LocalRanks get_local_ranks(const ParallelContext& context, int world_rank) {
  return context.mesh().grid().get_local_ranks(world_rank);
}

// PipelineBlock, TensorPointer and build_and_set_rank have their names in trireme::.
using P2P = PipelineP2P;
using AllForwardAllBackwardPipelineEngine = AllForwardAllBackward;
using OneForwardOneBackwardPipelineEngine = OneForwardOneBackward;

/// While the result lives, layers made by this thread have their parameters there.
inline InitScope init_on_device_and_dtype(at::Device device, at::ScalarType dtype) { return {device, dtype}; }

/// The attribute of a module decides at each call whether its activations are kept.
///   at::Tensor forward(const at::Tensor& x) {
///     return checkpoint_method(do_checkpoint, [this](const at::Tensor& in) { ... }, x);
///   }
template <class Body, class... Tensors>
at::Tensor checkpoint_method(bool do_checkpoint, const Body& body, const Tensors&... inputs) {
  return do_checkpoint ? recompute(body, RecomputeOptions{}, inputs...) : body(inputs...);
}

}  // namespace trireme::compat
