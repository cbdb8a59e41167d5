#pragma once
// Dropout whose mask is a function of (seed, layer name, step, token, feature): the same mask for every layout, and in
// recomputation.
#include "trireme/kernels/dropout/dropout.hpp"
#include "trireme/nn/forward_context.hpp"
#include "trireme/nn/layer.hpp"

namespace trireme {

class Dropout final : public Layer {
 public:
  explicit Dropout(double p);
  /// x is [tokens, features], all features; `rows` are the ids of its tokens (ForwardContext::rows_T, or own_tokens of
  /// it).
  at::Tensor forward(const at::Tensor& x, const at::Tensor& rows, const ForwardContext& context);
  /// residual + forward(...), in one pass.
  at::Tensor forward_onto(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& rows,
                          const ForwardContext& context);
  /// Whether anything is dropped: not in a forward outside of training, nor after eval().
  bool active(const ForwardContext& context) const { return context.training && is_training() && p_ > 0; }
  double p() const { return p_; }
  /// The key of this layer's masks in this step.
  kernels::DropoutKey key(const ForwardContext& context) const;

 private:
  const double p_;
};

}  // namespace trireme
