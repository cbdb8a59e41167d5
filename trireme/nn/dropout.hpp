#pragma once
// Dropout whose mask is a function of (seed, name of the layer, step, token, feature): the same numbers on every
// layout, and again in recompute.
#include "trireme/kernels/dropout.hpp"
#include "trireme/nn/forward_context.hpp"
#include "trireme/nn/layer.hpp"

namespace trireme {

class Dropout final : public Layer {
 public:
  explicit Dropout(double p);
  /// x is [tokens, features], all features; `rows` the numbers of its tokens (ForwardContext::rows_T, or own_tokens of
  /// it).
  at::Tensor forward(const at::Tensor& x, const at::Tensor& rows, const ForwardContext& context);
  /// Whether anything is dropped: not in a forward that does not train, nor after eval().
  bool active(const ForwardContext& context) const { return context.training && is_training() && p_ > 0; }
  double p() const { return p_; }
  /// Which masks this layer draws from in this step.
  kernels::DropoutKey key(const ForwardContext& context) const;

 private:
  const double p_;
};

}  // namespace trireme
