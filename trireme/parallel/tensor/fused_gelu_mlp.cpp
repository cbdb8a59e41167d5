#include "trireme/parallel/tensor/fused_gelu_mlp.hpp"

#include <utility>

#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/activation/gelu.hpp"
#include "trireme/kernels/matmul/fused_matmul.hpp"
#include "trireme/kernels/matmul/gradient_place.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/kernels/rows/first_order.hpp"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct MlpCall final : torch::CustomClassHolder {
  MlpCall(Input in, Group& group, const MaybeRebuild& again)
      : input(in), tp(group), make_x(again ? again->make : nullptr) {}
  const Input input;
  Group& tp;
  const std::function<at::Tensor(const std::vector<at::Tensor>&)> make_x;
};

struct FusedGeluMlp : torch::autograd::Function<FusedGeluMlp> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_tD, const at::Tensor& up_fD,
                            const at::Tensor& up_bias_f, const at::Tensor& down_Df,
                            const std::optional<at::Tensor>& down_bias_D, const std::optional<at::Tensor>& residual_TD,
                            Input input, Group& tp, const MaybeRebuild& rebuild, bool rebuild_activation) {
    const at::Tensor x_TD = input == Input::token_shard ? tp.all_gather(x_tD.contiguous()).wait() : x_tD;
    const auto [hidden_Tf, before_Tf] = kernels::linear_gelu(x_TD, up_fD, up_bias_f);
    ctx->saved_data["call"] = c10::IValue::make_capsule(c10::make_intrusive<MlpCall>(input, tp, rebuild));
    tensor_list kept{up_fD,     up_bias_f,
                     down_Df,   down_bias_D.value_or(at::Tensor()),
                     before_Tf, rebuild_activation ? at::Tensor() : hidden_Tf};
    const tensor_list from = rebuild ? rebuild->from : tensor_list{x_tD};
    kept.insert(kept.end(), from.begin(), from.end());
    ctx->save_for_backward(std::move(kept));
    ctx->saved_data["residual"] = residual_TD.has_value();
    return kernels::linear_with_residual(hidden_Tf, down_Df, down_bias_D.value_or(at::Tensor()),
                                         residual_TD ? residual_TD->contiguous() : at::Tensor());
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    kernels::require_first_order("MLP");
    const auto capsule = ctx->saved_data["call"].toCapsule();
    const MlpCall& call = static_cast<const MlpCall&>(*capsule);
    tensor_list kept = ctx->get_saved_variables();
    const at::Tensor up_fD = kept[0], up_bias_f = kept[1], down_Df = kept[2], down_bias_D = kept[3],
                     before_Tf = kept[4];
    at::Tensor hidden_Tf = kept[5];
    tensor_list from(kept.begin() + 6, kept.end());
    kept.clear();
    const at::Tensor dy_TD = grads[0].contiguous();
    const auto wants = [&](std::size_t i) { return ctx->needs_input_grad(i); };

    // What other ranks wait for comes first; the gradients of the weights overlap its communication.
    std::optional<Pending> gathering, reducing;
    at::Tensor x;
    if (wants(1)) {
      x = call.make_x ? call.make_x(from) : from[0];
      if (call.input == Input::token_shard) gathering.emplace(call.tp.all_gather(x.contiguous()));
    }
    const at::Tensor dbefore_Tf = kernels::gelu_gradient(dy_TD, down_Df, before_Tf);
    at::Tensor dx;
    if (wants(0)) {
      dx = kernels::matmul_nn(dbefore_Tf, up_fD);
      if (call.input == Input::replicated) reducing.emplace(call.tp.all_reduce_(dx));
      if (call.input == Input::token_shard) reducing.emplace(call.tp.reduce_scatter(dx));
    }
    at::Tensor dup_fD, dup_bias_f, ddown_Df, ddown_bias_D;
    if (wants(3)) {
      if (!hidden_Tf.defined()) hidden_Tf = kernels::gelu(before_Tf, /*tanh_form=*/true);
      ddown_Df = kernels::write_weight_gradient(down_Df, dy_TD, hidden_Tf);
      hidden_Tf.reset();
    }
    if (down_bias_D.defined() && wants(4)) ddown_bias_D = kernels::write_bias_gradient(down_bias_D, dy_TD);
    if (gathering) x = std::move(*gathering).wait();
    if (wants(1)) dup_fD = kernels::write_weight_gradient(up_fD, dbefore_Tf, x);
    if (wants(2)) dup_bias_f = kernels::write_bias_gradient(up_bias_f, dbefore_Tf);
    if (reducing) dx = std::move(*reducing).wait();
    return {dx,           dup_fD,       dup_bias_f,
            ddown_Df,     ddown_bias_D, ctx->saved_data["residual"].toBool() ? grads[0] : at::Tensor(),
            at::Tensor(), at::Tensor(), at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

bool has_fused_gelu_mlp(const at::Tensor& x_tD, const GeluMlpWeights& w) {
  return w.up_bias_f.defined() && kernels::has_fused_matmul(x_tD, w.up_fD) &&
         kernels::has_fused_matmul(x_tD, w.down_Df);
}

at::Tensor fused_gelu_mlp(const at::Tensor& x_tD, const GeluMlpWeights& w, const at::Tensor& residual_TD, Input input,
                          Group& tp, const MaybeRebuild& rebuild, bool rebuild_activation) {
  require(input != Input::feature_shard, "an MLP on group ", tp.str(), ": its input has all features");
  const auto optional = [](const at::Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
  return FusedGeluMlp::apply(x_tD, w.up_fD, w.up_bias_f, w.down_Df, optional(w.down_bias_D), optional(residual_TD),
                             input, tp, rebuild, rebuild_activation);
}

}  // namespace trireme
