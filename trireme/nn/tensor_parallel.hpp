#pragma once
// Over whom layers are cut, and which tokens a rank holds between two of them.
#include <ATen/core/Tensor.h>

#include "trireme/comm/group.hpp"
#include "trireme/layout/axis.hpp"

namespace trireme {

/// Activations are [tokens, features], the tokens of a microbatch one sample after the other. Without sequence parallel
/// every rank of `group` holds all T tokens between the layers; with it, rank r holds tokens [r T/n, (r+1) T/n),
/// whatever samples they belong to: so gathering and scattering need no transposition, and T (not a sample) must be
/// divisible.
struct TensorParallel {
  Group& group;
  bool sequence_parallel = false;

  int size() const { return group.size(); }
  int rank() const { return group.rank(); }
  /// Where parameters that are used on tokens between the layers have partial gradients.
  AxisSet partial_between() const { return sequence_parallel ? AxisSet(Axis::tp) : AxisSet(); }
  /// The part of a tensor over all tokens that goes with what this rank holds between the layers.
  at::Tensor own_tokens(const at::Tensor& x_T) const;

  // T tokens, t = those between the layers; both with gradients.
  /// Into a cut layer: x of all tokens. dx_t = the sum over ranks of dy_T, of the own tokens.
  at::Tensor gather(const at::Tensor& x_t) const;
  /// Out of a cut layer: the sum over ranks of the parts, of the own tokens. dpart_T = dy of all tokens.
  at::Tensor add_up(const at::Tensor& part_T) const;
};

}  // namespace trireme
