#include "trireme/kernels/norm/residual_norm.hpp"

#include <optional>

#include "trireme/kernels/norm/layer_norm.hpp"
#include "trireme/kernels/norm/rms_norm.hpp"
#include "trireme/kernels/rows/on_cuda.hpp"
#include "trireme/kernels/rows/rows.hpp"

namespace trireme::kernels {
namespace {

using namespace detail;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct ResidualNormOnCuda : torch::autograd::Function<ResidualNormOnCuda> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& x, const std::optional<at::Tensor>& residual,
                             const at::Tensor& weight, const std::optional<at::Tensor>& bias, double eps) {
    const NormResult out = norm_on_cuda(x, residual.value_or(at::Tensor()), weight, bias.value_or(at::Tensor()), eps);
    ctx->saved_data["residual"] = residual.has_value();
    ctx->save_for_backward({out.sum, weight, out.mean_T, out.rstd_T, bias.value_or(at::Tensor())});
    ctx->set_materialize_grads(false);
    return {out.sum, out.y};
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    require_first_order("residual_norm");
    const auto kept = ctx->get_saved_variables();
    const at::Tensor &dsum = grads[0], &dy = grads[1];
    NormGradients d{.dx = dsum, .partial_dweight = {}, .partial_dbias = {}};
    at::Tensor dweight, dbias;
    if (dy.defined()) {
      d = norm_backward_on_cuda(dy.contiguous(), dsum.defined() ? dsum.contiguous() : dsum, kept[0], kept[1], kept[2],
                                kept[3]);
      dweight = add_up_gradient(kept[1], d.partial_dweight);
      if (kept[4].defined()) dbias = add_up_gradient(kept[4], d.partial_dbias);
    }
    return {d.dx, ctx->saved_data["residual"].toBool() ? d.dx : at::Tensor(), dweight, dbias, at::Tensor()};
  }
};

}  // namespace

ResidualNorm residual_norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                           const at::Tensor& bias, double eps) {
  if (!has_norm_on_cuda(x) || !x.is_contiguous()) {
    const at::Tensor sum = residual.defined() ? x + residual : x;
    return {sum, bias.defined() ? layer_norm(sum, weight, bias, eps) : rms_norm(sum, weight, eps)};
  }
  constexpr const char* kName = "residual_norm";
  require_dtype(kName, x);
  if (residual.defined())
    require(
        residual.sizes() == x.sizes() && residual.scalar_type() == x.scalar_type() && residual.device() == x.device(),
        kName, ": residual of sizes ", residual.sizes(), ", ", residual.scalar_type(), " on ", residual.device(),
        " for x of sizes ", x.sizes(), ", ", x.scalar_type(), " on ", x.device());
  const at::Tensor added = residual.defined() ? residual.contiguous() : residual;
  require_like(kName, "weight", weight, {x.size(-1)}, x.scalar_type(), x.device());
  if (bias.defined()) require_like(kName, "bias", bias, {x.size(-1)}, x.scalar_type(), x.device());
  if (!wants_grad(x, residual, weight, bias)) {
    const NormResult out = norm_on_cuda(x, added, weight, bias, eps);
    return {out.sum, out.y};
  }
  const auto maybe = [](const at::Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; };
  const tensor_list out = ResidualNormOnCuda::apply(x, maybe(added), weight, maybe(bias), eps);
  return {out[0], out[1]};
}

}  // namespace trireme::kernels
