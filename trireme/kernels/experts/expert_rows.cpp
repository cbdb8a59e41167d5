#include "trireme/kernels/experts/expert_rows.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/rows/dtype.hpp"
#include "trireme/kernels/rows/first_order.hpp"
#include "trireme/kernels/rows/on_cuda.hpp"

// T tokens, k experts of each, R = T k rows, D features
namespace trireme::kernels {
namespace {

using namespace detail;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct RowGradients {
  at::Tensor rows, weights;
};

at::Tensor repeated(const at::Tensor& x_TD, std::int64_t k) {
  return x_TD.unsqueeze(1).expand({x_TD.size(0), k, x_TD.size(1)});
}

/// rows[place[t, j]] = x[t]
at::Tensor spread(const at::Tensor& x_TD, const at::Tensor& place_Tk) {
  const std::int64_t T = x_TD.size(0), k = place_Tk.size(1), D = x_TD.size(1);
  if (has_expert_rows_on_cuda(x_TD)) return spread_rows_on_cuda(x_TD, place_Tk);
  return at::empty({T * k, D}, x_TD.options().requires_grad(false))
      .index_copy_(0, place_Tk.flatten(), repeated(x_TD, k).reshape({T * k, D}));
}

/// Undefined weights: ones.
at::Tensor gather(const at::Tensor& rows_RD, const at::Tensor& place_Tk, const at::Tensor& weights_Tk) {
  const std::int64_t T = place_Tk.size(0), k = place_Tk.size(1), D = rows_RD.size(1);
  if (has_expert_rows_on_cuda(rows_RD)) return gather_rows_on_cuda(rows_RD, place_Tk, weights_Tk);
  at::Tensor of_tokens =
      rows_RD.index_select(0, place_Tk.flatten()).view({T, k, D}).to(wide_dtype(rows_RD.scalar_type()));
  if (weights_Tk.defined()) of_tokens = of_tokens * weights_Tk.unsqueeze(2);
  return of_tokens.sum(1).to(rows_RD.scalar_type());
}

RowGradients gather_backward(const at::Tensor& dy_TD, const at::Tensor& rows_RD, const at::Tensor& place_Tk,
                             const at::Tensor& weights_Tk) {
  RowGradients out{at::empty_like(rows_RD), at::empty_like(weights_Tk)};
  if (has_expert_rows_on_cuda(rows_RD) && has_expert_rows_on_cuda(dy_TD)) {
    gather_rows_backward_on_cuda(dy_TD, rows_RD, place_Tk, weights_Tk, out.rows, out.weights);
    return out;
  }
  const std::int64_t T = place_Tk.size(0), k = place_Tk.size(1), D = rows_RD.size(1);
  const at::Tensor dy = repeated(dy_TD.to(weights_Tk.scalar_type()), k);
  const at::Tensor of_tokens = rows_RD.index_select(0, place_Tk.flatten()).view({T, k, D});
  out.weights = (dy * of_tokens).sum(2);
  out.rows.index_copy_(0, place_Tk.flatten(),
                       (dy * weights_Tk.unsqueeze(2)).to(rows_RD.scalar_type()).reshape({T * k, D}));
  return out;
}

struct Spread : torch::autograd::Function<Spread> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& place_Tk) {
    ctx->save_for_backward({place_Tk});
    return spread(x_TD, place_Tk);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list drows) {
    require_first_order("rows of experts");
    return {gather(drows[0].contiguous(), ctx->get_saved_variables()[0], {}), at::Tensor()};
  }
};

struct Gather : torch::autograd::Function<Gather> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows_RD, const at::Tensor& place_Tk,
                            const at::Tensor& weights_Tk) {
    ctx->save_for_backward({rows_RD, place_Tk, weights_Tk});
    return gather(rows_RD, place_Tk, weights_Tk);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list dy) {
    require_first_order("rows of experts");
    const tensor_list kept = ctx->get_saved_variables();
    const RowGradients gradients = gather_backward(dy[0].contiguous(), kept[0], kept[1], kept[2]);
    return {gradients.rows, at::Tensor(), gradients.weights};
  }
};

void check(const at::Tensor& x, const at::Tensor& place_Tk, std::int64_t rows) {
  require(x.dim() == 2 && place_Tk.dim() == 2 && place_Tk.scalar_type() == at::kLong && x.size(0) == rows &&
              place_Tk.device() == x.device(),
          "rows of experts: ", x.sizes(), " for places of sizes ", place_Tk.sizes(), " in ", place_Tk.scalar_type());
}

}  // namespace

at::Tensor spread_rows(const at::Tensor& x_TD, const at::Tensor& place_Tk) {
  check(x_TD, place_Tk, place_Tk.size(0));
  const at::Tensor x = x_TD.contiguous(), place = place_Tk.contiguous();
  return at::GradMode::is_enabled() && x.requires_grad() ? Spread::apply(x, place) : spread(x, place);
}

at::Tensor gather_rows(const at::Tensor& rows_RD, const at::Tensor& place_Tk, const at::Tensor& weights_Tk) {
  check(rows_RD, place_Tk, place_Tk.numel());
  require(weights_Tk.sizes() == place_Tk.sizes() && weights_Tk.scalar_type() == wide_dtype(rows_RD.scalar_type()),
          "rows of experts: weights of sizes ", weights_Tk.sizes(), " in ", weights_Tk.scalar_type(), " for places of ",
          place_Tk.sizes());
  const at::Tensor rows = rows_RD.contiguous(), place = place_Tk.contiguous(), weights = weights_Tk.contiguous();
  return at::GradMode::is_enabled() && (rows.requires_grad() || weights.requires_grad())
             ? Gather::apply(rows, place, weights)
             : gather(rows, place, weights);
}

}  // namespace trireme::kernels
