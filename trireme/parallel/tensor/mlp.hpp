#pragma once
// The two kinds of MLP (GELU and gated), with the hidden features sharded over tp.
#include <memory>

#include "trireme/nn/forward_context.hpp"
#include "trireme/parallel/tensor/linear.hpp"

namespace trireme {

// T tokens, D features, F hidden, f = F / tp
class MlpLayer : public Layer {
 public:
  /// `rebuild`: how to recompute x; `rebuild_activation`: whether to also recompute the activation in backward.
  virtual at::Tensor forward(const at::Tensor& x, const ForwardContext& context, const MaybeRebuild& rebuild = {},
                             bool rebuild_activation = false) = 0;
  /// residual_tD + forward(...), in one pass where that is possible.
  virtual at::Tensor forward_onto(const at::Tensor& residual_tD, const at::Tensor& x, const ForwardContext& context,
                                  const MaybeRebuild& rebuild = {}, bool rebuild_activation = false) {
    return residual_tD + forward(x, context, rebuild, rebuild_activation);
  }
};

/// y = W_down gelu(W_up x + b) + b
class GeluMlp final : public MlpLayer {
 public:
  /// `tanh_form`: GPT-2's approximation ("gelu_new", "gelu_pytorch_tanh").
  GeluMlp(std::int64_t features, std::int64_t hidden, bool bias, bool tanh_form, Parallel parallel);
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context, const MaybeRebuild& rebuild = {},
                     bool rebuild_activation = false) override;
  at::Tensor forward_onto(const at::Tensor& residual_tD, const at::Tensor& x, const ForwardContext& context,
                          const MaybeRebuild& rebuild = {}, bool rebuild_activation = false) override;

 private:
  const bool tanh_form_;
  const Parallel parallel_;
  std::shared_ptr<ColumnLinear> up_;
  std::shared_ptr<RowLinear> down_;
};

/// What a gate passes through.
enum class GateActivation { silu, gelu, gelu_tanh };

/// y = W_down (activation(W_gate x) * W_up x), gate and up in one matmul.
class GatedMlp final : public MlpLayer {
 public:
  GatedMlp(std::int64_t features, std::int64_t hidden, Parallel parallel,
           GateActivation activation = GateActivation::silu);
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context, const MaybeRebuild& rebuild = {},
                     bool rebuild_activation = false) override;
  at::Tensor forward_onto(const at::Tensor& residual_tD, const at::Tensor& x, const ForwardContext& context,
                          const MaybeRebuild& rebuild = {}, bool rebuild_activation = false) override;

 private:
  const GateActivation activation_;
  std::shared_ptr<ColumnLinear> gate_up_;
  std::shared_ptr<RowLinear> down_;
};

}  // namespace trireme
