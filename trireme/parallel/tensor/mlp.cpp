#include "trireme/parallel/tensor/mlp.hpp"

#include "trireme/kernels/activation/geglu.hpp"
#include "trireme/kernels/activation/gelu.hpp"
#include "trireme/kernels/activation/swiglu.hpp"
#include "trireme/parallel/tensor/fused_gelu_mlp.hpp"

namespace trireme {

GeluMlp::GeluMlp(std::int64_t features, std::int64_t hidden, bool bias, bool tanh_form, Parallel parallel)
    : tanh_form_(tanh_form), parallel_(parallel) {
  up_ = register_module("up", std::make_shared<ColumnLinear>(features, hidden, parallel, ColumnOptions{.bias = bias}));
  down_ = register_module("down", std::make_shared<RowLinear>(hidden, features, parallel,
                                                              RowOptions{.bias = bias, .fill = Fill::residual_weight}));
}

at::Tensor GeluMlp::forward(const at::Tensor& x, const ForwardContext& context, const MaybeRebuild& rebuild,
                            bool rebuild_activation) {
  return forward_onto({}, x, context, rebuild, rebuild_activation);
}

at::Tensor GeluMlp::forward_onto(const at::Tensor& residual_tD, const at::Tensor& x, const ForwardContext&,
                                 const MaybeRebuild& rebuild, bool rebuild_activation) {
  const GeluMlpWeights weights{up_->weight_fD, up_->bias_f, down_->weight_Df, down_->bias_of_product()};
  if (tanh_form_ && !parallel_.fp8 && has_fused_gelu_mlp(x, weights))
    return down_->finish(fused_gelu_mlp(x, weights, down_->residual_of_product(residual_tD), input_between(parallel_),
                                        parallel_.tp, rebuild, rebuild_activation),
                         residual_tD);
  const at::Tensor up_Tf = up_->forward(x, rebuild);
  const auto activation = [tanh = tanh_form_](const std::vector<at::Tensor>& from) {
    return kernels::gelu(from[0], tanh);
  };
  return down_->forward(activation({up_Tf}), rebuild_activation ? MaybeRebuild{{{up_Tf}, activation}} : std::nullopt,
                        residual_tD);
}

GatedMlp::GatedMlp(std::int64_t features, std::int64_t hidden, Parallel parallel, GateActivation activation)
    : activation_(activation) {
  gate_up_ = register_module(
      "gate_up", std::make_shared<ColumnLinear>(features, 2 * hidden, parallel,
                                                ColumnOptions{.sections = gate_up(Axis::tp, 0, hidden).sections}));
  down_ = register_module(
      "down", std::make_shared<RowLinear>(hidden, features, parallel, RowOptions{.fill = Fill::residual_weight}));
}

at::Tensor GatedMlp::forward(const at::Tensor& x, const ForwardContext& context, const MaybeRebuild& rebuild,
                             bool rebuild_activation) {
  return forward_onto({}, x, context, rebuild, rebuild_activation);
}

at::Tensor GatedMlp::forward_onto(const at::Tensor& residual_tD, const at::Tensor& x, const ForwardContext&,
                                  const MaybeRebuild& rebuild, bool rebuild_activation) {
  const at::Tensor gate_up_T2f = gate_up_->forward(x, rebuild);
  const auto activation = [which = activation_](const std::vector<at::Tensor>& from) {
    return which == GateActivation::silu ? kernels::swiglu(from[0])
                                         : kernels::geglu(from[0], which == GateActivation::gelu_tanh);
  };
  return down_->forward(activation({gate_up_T2f}),
                        rebuild_activation ? MaybeRebuild{{{gate_up_T2f}, activation}} : std::nullopt, residual_tD);
}

}  // namespace trireme
