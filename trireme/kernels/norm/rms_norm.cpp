#include "trireme/kernels/norm/rms_norm.hpp"

#include <cmath>
#include <tuple>

#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "trireme/kernels/rows/on_cuda.hpp"
#include "trireme/kernels/rows/rows.hpp"

// T rows, D their width
namespace trireme::kernels {
namespace {

using namespace detail;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Returns rstd.
template <class S, class W = Wide<S>>
[[gnu::flatten]] W forward_row(const S* x, const S* weight, S* y, std::int64_t D, W eps) {
  Lanes<W> squares;
  for_lanes<W>(D, [&](std::int64_t i, auto n) {
    const Lanes<W> v = load(x + i, n);
    squares += v * v;
  });
  const W rstd = 1 / std::sqrt(sum(squares) / static_cast<W>(D) + eps);
  for_lanes<W>(D, [&](std::int64_t i, auto n) { store(y + i, load(x + i, n) * rstd * load(weight + i, n), n); });
  return rstd;
}

/// Adds to dweight.
template <class S, class W = Wide<S>>
[[gnu::flatten]] void backward_row(const S* dy, const S* x, const S* weight, W rstd, S* dx, W* dweight,
                                   std::int64_t D) {
  Lanes<W> products;
  for_lanes<W>(D, [&](std::int64_t i, auto n) { products += load(dy + i, n) * load(weight + i, n) * load(x + i, n); });
  const W mean = sum(products) * rstd / static_cast<W>(D);
  for_lanes<W>(D, [&](std::int64_t i, auto n) {
    const Lanes<W> g = load(dy + i, n), h = load(x + i, n) * rstd;
    store(dx + i, (g * load(weight + i, n) - h * mean) * rstd, n);
    store(dweight + i, load(dweight + i, n) + g * h, n);
  });
}

std::tuple<at::Tensor, at::Tensor> forward_of(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  const std::int64_t D = weight_D.size(0), T = x.numel() / D;
  if (has_norm_on_cuda(x)) {
    const NormResult out = norm_on_cuda(x, {}, weight_D, {}, eps);
    return {out.y, out.rstd_T};
  }
  if (!x.is_cpu()) return at::_fused_rms_norm(x, {D}, weight_D, eps);
  const at::Tensor y = at::empty_like(x);
  const at::Tensor rstd_T = at::empty({T}, x.options().dtype(wide_dtype(x.scalar_type())));
  by_dtype("rms_norm", x.scalar_type(), [&]<class S>(S) {
    const S *from = x.const_data_ptr<S>(), *weight = weight_D.const_data_ptr<S>();
    S* const to = y.mutable_data_ptr<S>();
    auto* const rstd = rstd_T.mutable_data_ptr<Wide<S>>();
    over_rows(T, D, [=](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t)
        rstd[t] = forward_row(from + t * D, weight, to + t * D, D, static_cast<Wide<S>>(eps));
    });
  });
  return {y, rstd_T};
}

std::tuple<at::Tensor, at::Tensor> backward_of(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight_D,
                                               const at::Tensor& rstd_T) {
  const std::int64_t D = weight_D.size(0), T = x.numel() / D;
  if (has_norm_on_cuda(x)) {
    const NormGradients d = norm_backward_on_cuda(dy, {}, x, weight_D, {}, rstd_T);
    return {d.dx, add_up_gradient(weight_D, d.partial_dweight)};
  }
  if (!x.is_cpu()) return at::_fused_rms_norm_backward(dy, x, {D}, rstd_T, weight_D, {true, true});
  const at::Tensor dx = at::empty_like(x);
  at::Tensor dweight_D;
  by_dtype("rms_norm", x.scalar_type(), [&]<class S>(S) {
    using W = Wide<S>;
    const S *dy_ = dy.const_data_ptr<S>(), *x_ = x.const_data_ptr<S>(), *weight = weight_D.const_data_ptr<S>();
    const W* const rstd = rstd_T.const_data_ptr<W>();
    S* const dx_ = dx.mutable_data_ptr<S>();
    dweight_D = sum_over_rows<W>(T, D, weight_D.options(), [=](std::int64_t first, std::int64_t last, W* sums) {
      for (std::int64_t t = first; t < last; ++t)
        backward_row(dy_ + t * D, x_ + t * D, weight, rstd[t], dx_ + t * D, sums, D);
    });
  });
  return {dx, dweight_D};
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight_D, double eps) {
    auto [y, rstd_T] = forward_of(x, weight_D, eps);
    ctx->save_for_backward({x, weight_D, rstd_T});
    return y;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list dy) {
    require_first_order("rms_norm");
    const auto kept = ctx->get_saved_variables();
    auto [dx, dweight_D] = backward_of(dy[0].contiguous(), kept[0], kept[1], kept[2]);
    return {dx, dweight_D, at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  require_dtype("rms_norm", x);
  require(x.dim() >= 1 && x.size(-1) > 0, "rms_norm: x of sizes ", x.sizes(), ": must end in a dim of 1 or more");
  require_contiguous("rms_norm", "x", x);
  require_like("rms_norm", "weight", weight_D, {x.size(-1)}, x.scalar_type(), x.device());
  if (wants_grad(x, weight_D)) return RmsNorm::apply(x, weight_D, eps);
  return std::get<0>(forward_of(x, weight_D, eps));
}

}  // namespace trireme::kernels
