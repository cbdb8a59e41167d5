#pragma once
// What a layer needs to know of the layout: where its parameters live, whom it communicates with, and which tokens this
// rank holds between two layers.
#include <ATen/core/Tensor.h>

#include "trireme/comm/param_mesh.hpp"

namespace trireme {

/// Activations are [tokens, features], the tokens of a microbatch one sample after the other. Without sequence
/// parallelism every rank of tp holds all T tokens between the layers; with it, rank r holds tokens
/// [r T/tp, (r+1) T/tp), whatever samples they belong to: gathering and scattering need no transposition, and T (not a
/// sample) must be divisible.
struct Parallel {
  Parallel(Mesh& mesh,
           bool sequence_parallel = false);  // not explicit: a mesh is a layout without sequence parallelism

  ParamMesh params;
  Group &tp, &cp, &ep;  // ep: of one rank where the mesh has no view for experts
  bool sequence_parallel;

  /// Axes along which parameters that act on the tokens between the layers have partial gradients.
  AxisSet partial_between() const { return sequence_parallel ? AxisSet(Axis::tp) : AxisSet(); }
  /// The rows of a tensor over all tokens that belong to the tokens this rank holds between the layers.
  at::Tensor own_tokens(const at::Tensor& x_T) const;

  // T tokens, t = those between the layers; both with gradients.
  /// Into a sharded layer: x of all tokens. dx_t = the sum over ranks of dy_T, of the own tokens.
  at::Tensor gather(const at::Tensor& x_t) const;
  /// Out of a sharded layer: the sum over ranks of the parts, of the own tokens. dpart_T = dy of all tokens.
  at::Tensor add_up(const at::Tensor& part_T) const;
};

}  // namespace trireme
