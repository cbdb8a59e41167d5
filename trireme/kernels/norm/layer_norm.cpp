#include "trireme/kernels/norm/layer_norm.hpp"

#include <cmath>
#include <tuple>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "trireme/kernels/rows/on_cuda.hpp"
#include "trireme/kernels/rows/rows.hpp"

// T rows, D their width. Not at::native_layer_norm_backward on a CPU: its dweight and dbias depend on the number of
// threads.
namespace trireme::kernels {
namespace {

using namespace detail;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

template <class W>
struct Moments {
  W mean, rstd;
};

template <class S, class W = Wide<S>>
[[gnu::flatten]] Moments<W> forward_row(const S* x, const S* weight, const S* bias, S* y, std::int64_t D, W eps) {
  Lanes<W> total, squares;
  for_lanes<W>(D, [&](std::int64_t i, auto n) { total += load(x + i, n); });
  const W mean = sum(total) / static_cast<W>(D);
  // From the differences, not as E[x^2] - mean^2, which loses all precision if the mean is large. The row is in cache.
  for_lanes<W>(D, [&](std::int64_t i, auto n) {
    const Lanes<W> v = only(load(x + i, n) - mean, n, W{0});
    squares += v * v;
  });
  const W rstd = 1 / std::sqrt(sum(squares) / static_cast<W>(D) + eps);
  for_lanes<W>(D, [&](std::int64_t i, auto n) {
    store(y + i, (load(x + i, n) - mean) * rstd * load(weight + i, n) + load(bias + i, n), n);
  });
  return {mean, rstd};
}

/// Adds to dweight and dbias.
template <class S, class W = Wide<S>>
[[gnu::flatten]] void backward_row(const S* dy, const S* x, const S* weight, Moments<W> of, S* dx, W* dweight, W* dbias,
                                   std::int64_t D) {
  Lanes<W> total, products;
  for_lanes<W>(D, [&](std::int64_t i, auto n) {
    const Lanes<W> g = load(dy + i, n) * load(weight + i, n);
    total += g;
    products += g * (load(x + i, n) - of.mean);
  });
  const W mean_g = sum(total) / static_cast<W>(D), mean_gh = sum(products) * of.rstd / static_cast<W>(D);
  for_lanes<W>(D, [&](std::int64_t i, auto n) {
    const Lanes<W> g = load(dy + i, n), h = (load(x + i, n) - of.mean) * of.rstd;
    store(dx + i, (g * load(weight + i, n) - mean_g - h * mean_gh) * of.rstd, n);
    store(dweight + i, load(dweight + i, n) + g * h, n);
    store(dbias + i, load(dbias + i, n) + g, n);
  });
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> forward_of(const at::Tensor& x, const at::Tensor& weight_D,
                                                          const at::Tensor& bias_D, double eps) {
  const std::int64_t D = weight_D.size(0), T = x.numel() / D;
  if (has_norm_on_cuda(x)) {
    const NormResult out = norm_on_cuda(x, {}, weight_D, bias_D, eps);
    return {out.y, out.mean_T, out.rstd_T};
  }
  if (!x.is_cpu()) return at::native_layer_norm(x, {D}, weight_D, bias_D, eps);
  const at::Tensor y = at::empty_like(x);
  const auto wide = x.options().dtype(wide_dtype(x.scalar_type()));
  const at::Tensor mean_T = at::empty({T}, wide), rstd_T = at::empty({T}, wide);
  by_dtype("layer_norm", x.scalar_type(), [&]<class S>(S) {
    const S *from = x.const_data_ptr<S>(), *weight = weight_D.const_data_ptr<S>(), *bias = bias_D.const_data_ptr<S>();
    S* const to = y.mutable_data_ptr<S>();
    auto *const mean = mean_T.mutable_data_ptr<Wide<S>>(), *const rstd = rstd_T.mutable_data_ptr<Wide<S>>();
    over_rows(T, D, [=](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) {
        const auto of = forward_row(from + t * D, weight, bias, to + t * D, D, static_cast<Wide<S>>(eps));
        mean[t] = of.mean;
        rstd[t] = of.rstd;
      }
    });
  });
  return {y, mean_T, rstd_T};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward_of(const at::Tensor& dy, const at::Tensor& x,
                                                           const at::Tensor& weight_D, const at::Tensor& bias_D,
                                                           const at::Tensor& mean_T, const at::Tensor& rstd_T) {
  const std::int64_t D = weight_D.size(0), T = x.numel() / D;
  if (has_norm_on_cuda(x)) {
    const NormGradients d = norm_backward_on_cuda(dy, {}, x, weight_D, mean_T, rstd_T);
    return {d.dx, add_up_gradient(weight_D, d.partial_dweight), add_up_gradient(bias_D, d.partial_dbias)};
  }
  if (!x.is_cpu())
    return at::native_layer_norm_backward(dy, x, {D}, mean_T, rstd_T, weight_D, weight_D, {true, true, true});
  const at::Tensor dx = at::empty_like(x);
  at::Tensor sums_2D;
  by_dtype("layer_norm", x.scalar_type(), [&]<class S>(S) {
    using W = Wide<S>;
    const S *dy_ = dy.const_data_ptr<S>(), *x_ = x.const_data_ptr<S>(), *weight = weight_D.const_data_ptr<S>();
    const W *const mean = mean_T.const_data_ptr<W>(), *const rstd = rstd_T.const_data_ptr<W>();
    S* const dx_ = dx.mutable_data_ptr<S>();
    sums_2D = sum_over_rows<W>(T, 2 * D, weight_D.options(), [=](std::int64_t first, std::int64_t last, W* sums) {
      for (std::int64_t t = first; t < last; ++t)
        backward_row(dy_ + t * D, x_ + t * D, weight, {mean[t], rstd[t]}, dx_ + t * D, sums, sums + D, D);
    });
  });
  return {dx, sums_2D.narrow(0, 0, D).clone(), sums_2D.narrow(0, D, D).clone()};  // separate storage for each
}

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight_D,
                            const at::Tensor& bias_D, double eps) {
    auto [y, mean_T, rstd_T] = forward_of(x, weight_D, bias_D, eps);
    ctx->save_for_backward({x, weight_D, bias_D, mean_T, rstd_T});
    return y;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list dy) {
    require_first_order("layer_norm");
    const auto kept = ctx->get_saved_variables();
    auto [dx, dweight_D, dbias_D] = backward_of(dy[0].contiguous(), kept[0], kept[1], kept[2], kept[3], kept[4]);
    return {dx, dweight_D, dbias_D, at::Tensor()};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight_D, const at::Tensor& bias_D, double eps) {
  require_dtype("layer_norm", x);
  require(x.dim() >= 1 && x.size(-1) > 0, "layer_norm: x of sizes ", x.sizes(), ": must end in a dim of 1 or more");
  require_contiguous("layer_norm", "x", x);
  require_like("layer_norm", "weight", weight_D, {x.size(-1)}, x.scalar_type(), x.device());
  require_like("layer_norm", "bias", bias_D, {x.size(-1)}, x.scalar_type(), x.device());
  if (wants_grad(x, weight_D, bias_D)) return LayerNorm::apply(x, weight_D, bias_D, eps);
  return std::get<0>(forward_of(x, weight_D, bias_D, eps));
}

}  // namespace trireme::kernels
