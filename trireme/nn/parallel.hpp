#pragma once
// The parallel layout as a layer sees it: the placement of its parameters, its process groups, and which tokens this
// rank holds between two layers.
#include <memory>

#include <ATen/core/Tensor.h>

#include "trireme/comm/param_mesh.hpp"
#include "trireme/layout/context_split.hpp"
#include "trireme/nn/fp8_recipe.hpp"

namespace trireme {

/// Activations are [tokens, features], with the samples of a microbatch concatenated. Without sequence parallelism
/// every rank of tp holds all T tokens between the layers; with it, rank r holds tokens [r T/tp, (r+1) T/tp), across
/// sample boundaries: gather and scatter need no transpose, and T (not the sample length) must be divisible.
struct Parallel {
  /// Implicit on purpose: a mesh is a layout without sequence parallelism, and with a ring of all its cp ranks.
  Parallel(Mesh& mesh, bool sequence_parallel = false, const ContextSplit& context = {});

  ParamMesh params;
  Group &tp, &cp, &ep;  // ep: a group of one rank if the mesh has no expert view
  bool sequence_parallel;
  ContextSplit context;
  Group &ring, &ulysses;  // of cp: ranks between which K and V travel, and those that exchange tokens for heads
  std::shared_ptr<const Fp8Recipe> fp8 = {};  // if set, the linear layers multiply in 8 bits, except the head

  /// Axes along which parameters applied to the tokens between the layers have partial gradients.
  AxisSet partial_between() const { return sequence_parallel ? AxisSet(Axis::tp) : AxisSet(); }
  /// The rows of a tensor over all tokens for the tokens that this rank holds between the layers.
  at::Tensor own_tokens(const at::Tensor& x_T) const;

  // T tokens, t = those between the layers; both are differentiable.
  /// Input of a sharded layer: x for all tokens. dx_t = the sum over ranks of dy_T, for the own tokens.
  at::Tensor gather(const at::Tensor& x_t) const;
  /// Output of a sharded layer: the partial results summed over ranks, for the own tokens. dpart_T = dy for all tokens.
  at::Tensor add_up(const at::Tensor& part_T) const;
};

}  // namespace trireme
