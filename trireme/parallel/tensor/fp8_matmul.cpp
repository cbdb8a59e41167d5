#include "trireme/parallel/tensor/fp8_matmul.hpp"

#include <utility>

#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/matmul/fp8.hpp"
#include "trireme/kernels/matmul/gradient_place.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/kernels/rows/first_order.hpp"

namespace trireme {
namespace {

using kernels::Fp8;
using kernels::Fp8Layout;
using kernels::Fp8Matrix;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// How backward gets the columns of x.
struct Fp8Call final : torch::CustomClassHolder {
  Fp8Call(Input in, Group& group, const Fp8Layer& of, const MaybeRebuild& again)
      : input(in),
        tp(group),
        layer(of),
        make_x(again ? again->make : nullptr),
        keeps_columns(in != Input::token_shard && !again) {}
  const Input input;
  Group& tp;
  const Fp8Layer layer;
  const std::function<at::Tensor(const std::vector<at::Tensor>&)> make_x;
  const bool keeps_columns;
};

struct Fp8Matmul : torch::autograd::Function<Fp8Matmul> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight_NK,
                            const std::optional<at::Tensor>& bias_N, Input input, Group& tp, const Fp8Layer& layer,
                            bool records, const MaybeRebuild& rebuild) {
    const auto call = c10::make_intrusive<Fp8Call>(input, tp, layer, rebuild);
    const at::Tensor all_TK = (input == Input::token_shard ? tp.all_gather(x.contiguous()).wait() : x).contiguous();
    const bool keeps_columns = weight_NK.requires_grad() && call->keeps_columns;
    const Fp8Matrix x8 =
        kernels::to_fp8(all_TK, Fp8::e4m3, keeps_columns ? Fp8Layout::both : Fp8Layout::rows, layer.x(records));
    const Fp8Matrix w8 = kernels::to_fp8(weight_NK, Fp8::e4m3, Fp8Layout::rows, layer.weight(records));
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    tensor_list kept{weight_NK, bias_N.value_or(at::Tensor()), w8.scale, x8.column_scale};
    if (weight_NK.requires_grad()) {
      const tensor_list from = rebuild ? rebuild->from : tensor_list{keeps_columns ? x8.columns : x};
      kept.insert(kept.end(), from.begin(), from.end());
    }
    ctx->save_for_backward(std::move(kept));
    return kernels::fp8_matmul_nt(x8.rows, x8.scale, w8.rows, w8.scale, x.scalar_type(), bias_N.value_or(at::Tensor()),
                                  /*fast=*/true);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    kernels::require_first_order("linear layer");
    const auto capsule = ctx->saved_data["call"].toCapsule();
    const Fp8Call& call = static_cast<const Fp8Call&>(*capsule);
    tensor_list kept = ctx->get_saved_variables();
    const at::Tensor weight_NK = kept[0], bias_N = kept[1], weight_scale = kept[2], x_scale = kept[3];
    tensor_list from(kept.begin() + 4, kept.end());
    kept.clear();
    const bool wants_x = ctx->needs_input_grad(0), wants_weight = ctx->needs_input_grad(1);

    std::optional<Pending> gathering, reducing;
    at::Tensor x;
    if (wants_weight && !call.keeps_columns) {
      x = call.make_x ? call.make_x(from) : from[0];
      if (call.input == Input::token_shard) gathering.emplace(call.tp.all_gather(x.contiguous()));
    }
    const at::Tensor dy_TN = grads[0].contiguous();
    const Fp8Matrix dy8 =
        kernels::to_fp8(dy_TN, Fp8::e5m2, wants_weight ? Fp8Layout::both : Fp8Layout::rows, call.layer.dy());
    // The scale of a tensor is that of forward; those of rows follow from it again.
    const auto again = [](kernels::Fp8Options options, const at::Tensor& scale) {
      if (options.scaling == kernels::Fp8Scaling::tensor) options.scale = scale;
      return options;
    };
    at::Tensor dx, dweight, dbias;
    if (wants_x) {
      const Fp8Matrix w8 =
          kernels::to_fp8(weight_NK, Fp8::e4m3, Fp8Layout::columns, again(call.layer.weight(false), weight_scale));
      dx = kernels::fp8_matmul_nt(dy8.rows, dy8.scale, w8.columns, w8.column_scale, dy_TN.scalar_type(), {},
                                  /*fast=*/false);
      if (call.input == Input::replicated) reducing.emplace(call.tp.all_reduce_(dx));
      if (call.input == Input::token_shard) reducing.emplace(call.tp.reduce_scatter(dx));
    }
    if (wants_weight) {
      if (gathering) x = std::move(*gathering).wait();
      const Fp8Matrix x8 =
          call.keeps_columns
              ? Fp8Matrix{.rows = {}, .columns = from[0], .scale = {}, .column_scale = x_scale}
              : kernels::to_fp8(x.contiguous(), Fp8::e4m3, Fp8Layout::columns, again(call.layer.x(false), x_scale));
      dweight =
          kernels::write_gradient(weight_NK, [dy_NT = dy8.columns, dy_scale = dy8.column_scale, x_KT = x8.columns,
                                              scale = x8.column_scale](const at::Tensor& value_NK, bool is_empty) {
            kernels::fp8_matmul_nt_out(value_NK, dy_NT, dy_scale, x_KT, scale, !is_empty);
          });
    }
    if (bias_N.defined() && ctx->needs_input_grad(2)) dbias = kernels::write_bias_gradient(bias_N, dy_TN);
    if (reducing) dx = std::move(*reducing).wait();
    return {dx, dweight, dbias, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

Fp8Layer::Fp8Layer(const Fp8Recipe& recipe) : scaling_(recipe.scaling), history_(recipe.history) {
  if (!history_) return;
  x_ = history_->add(Fp8::e4m3);
  weight_ = history_->add(Fp8::e4m3);
  dy_ = history_->add(Fp8::e5m2);
}

kernels::Fp8Options Fp8Layer::options(int tensor, bool records) const {
  if (!history_) return {.scaling = scaling_};
  kernels::Fp8Options out = history_->options(tensor, records);
  out.scaling = scaling_;
  return out;
}

at::Tensor fp8_matmul(const at::Tensor& x, const at::Tensor& weight_NK, const at::Tensor& bias_N, Input input,
                      Group& tp, const Fp8Layer& layer, const MaybeRebuild& rebuild) {
  const std::int64_t T = x.size(0) * (input == Input::token_shard ? tp.size() : 1);
  require<ConfigError>(T > 0 && T % 16 == 0 && kernels::has_fp8_sizes(weight_NK), "a linear layer of ", T,
                       " tokens with a weight of ", weight_NK.sizes(), " on group ", tp.str(),
                       ": products in fp8 need multiples of 16\n  fix: another training.micro_batch_size or seq_len, a "
                       "smaller tp, or precision.matmul = \"auto\"");
  return Fp8Matmul::apply(x, weight_NK, bias_N.defined() ? std::optional(bias_N) : std::nullopt, input, tp, layer,
                          /*records=*/at::GradMode::is_enabled(), rebuild);
}

}  // namespace trireme
