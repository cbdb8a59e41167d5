#include "trireme/parallel/tensor/parallel_matmul.hpp"

#include <utility>

#include <ATen/ops/addmm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/matmul/fused_matmul.hpp"
#include "trireme/kernels/matmul/gradient_place.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/kernels/rows/first_order.hpp"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct How final : torch::CustomClassHolder {
  How(Input in, Group& group, const MaybeRebuild& again) : input(in), tp(group), make(again ? again->make : nullptr) {}
  const Input input;
  Group& tp;
  const std::function<at::Tensor(const std::vector<at::Tensor>&)> make;
};

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, Input input,
                   Group& tp, const std::optional<at::Tensor>& residual) {
  const at::Tensor all = input == Input::token_shard ? tp.all_gather(x.contiguous()).wait() : x;
  if (residual && residual->is_contiguous() && residual->scalar_type() == all.scalar_type() &&
      kernels::has_fused_linear(all, weight))
    return kernels::linear_with_residual(all, weight, bias.value_or(at::Tensor()), *residual);
  if (residual) return *residual + product(x, weight, bias, input, tp, std::nullopt);
  // On a GPU the bias is part of the matrix product, not another pass over its result.
  if (bias && kernels::has_fused_linear(all, weight)) return kernels::linear_with_residual(all, weight, *bias, {});
  if (bias && all.is_cuda() && all.dim() == 2) return at::addmm(*bias, all, weight.t());
  at::Tensor y = kernels::matmul_nt(all, weight);
  if (bias) y.add_(*bias);
  return y;
}

struct ParallelMatmul : torch::autograd::Function<ParallelMatmul> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, Input input, Group& tp, const MaybeRebuild& rebuild,
                            const std::optional<at::Tensor>& residual) {
    ctx->saved_data["how"] = c10::IValue::make_capsule(c10::make_intrusive<How>(input, tp, rebuild));
    tensor_list kept;  // x or its rebuild inputs, if the weight is trained; weight and bias
    if (weight.requires_grad()) kept = rebuild ? rebuild->from : tensor_list{x};
    kept.insert(kept.end(), {weight, bias.value_or(at::Tensor())});
    ctx->save_for_backward(std::move(kept));
    ctx->saved_data["residual"] = residual.has_value();
    return product(x, weight, bias, input, tp, residual);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    kernels::require_first_order("linear layer");
    const auto capsule = ctx->saved_data["how"].toCapsule();
    const How& how = static_cast<const How&>(*capsule);
    tensor_list kept = ctx->get_saved_variables();
    const at::Tensor weight = kept[kept.size() - 2], bias = kept.back();
    kept.resize(kept.size() - 2);
    const at::Tensor dy = grads[0].contiguous();
    const bool wants_x = ctx->needs_input_grad(0), wants_weight = ctx->needs_input_grad(1);

    std::optional<Pending> gathering, reducing;
    at::Tensor x;
    if (wants_weight) {
      x = how.make ? how.make(kept) : kept[0];
      if (how.input == Input::token_shard) gathering.emplace(how.tp.all_gather(x.contiguous()));
    }
    at::Tensor dx, dweight, dbias;
    if (wants_x) {
      dx = kernels::matmul_nn(dy, weight);
      if (how.input == Input::replicated) reducing.emplace(how.tp.all_reduce_(dx));
      if (how.input == Input::token_shard) reducing.emplace(how.tp.reduce_scatter(dx));
    }
    if (wants_weight) {
      if (gathering) x = std::move(*gathering).wait();
      dweight = kernels::write_weight_gradient(weight, dy, x);
    }
    if (bias.defined() && ctx->needs_input_grad(2)) dbias = kernels::write_bias_gradient(bias, dy);
    if (reducing) dx = std::move(*reducing).wait();
    return {dx,
            dweight,
            dbias,
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            ctx->saved_data["residual"].toBool() ? grads[0] : at::Tensor()};
  }
};

}  // namespace

at::Tensor parallel_matmul(const at::Tensor& x, const at::Tensor& weight_NK, const at::Tensor& bias_N, Input input,
                           Group& tp, const MaybeRebuild& rebuild, const at::Tensor& residual_TN) {
  require(x.dim() == 2 && x.size(1) == weight_NK.size(1), "linear layer on group ", tp.str(), ": input of sizes ",
          x.sizes(), " for a weight of sizes ", weight_NK.sizes(), ": must be [tokens, ", weight_NK.size(1), "]");
  // An autograd function takes no undefined tensors.
  const std::optional<at::Tensor> bias = bias_N.defined() ? std::optional(bias_N) : std::nullopt;
  const std::optional<at::Tensor> residual = residual_TN.defined() ? std::optional(residual_TN) : std::nullopt;
  const bool wants_grad =
      at::GradMode::is_enabled() && (x.requires_grad() || weight_NK.requires_grad() ||
                                     (bias && bias->requires_grad()) || (residual && residual->requires_grad()));
  if (!wants_grad) return product(x, weight_NK, bias, input, tp, residual);
  return ParallelMatmul::apply(x, weight_NK, bias, input, tp, rebuild, residual);
}

}  // namespace trireme
