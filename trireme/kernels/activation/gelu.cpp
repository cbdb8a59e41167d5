#include "trireme/kernels/activation/gelu.hpp"

#include <cmath>
#include <numbers>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>

#include "trireme/kernels/rows/rows.hpp"

namespace trireme::kernels {
namespace {

using namespace detail;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// P and P' at x.
template <class W>
struct Weight {
  Lanes<W> value, slope;
};

/// erf(x / sqrt 2), to 4e-7: an odd rational function of z = x / sqrt 2 up to 3.937 (minimax, fitted for this file:
/// 2e-8 without rounding), 1 beyond, where it is 1 - 3e-8.
inline Register<float> erf_of_scaled(Register<float> x) {
  const Register<float> z = x * 0x1.6a09e6p-1F, u = z * z;
  Register<float> p = u * 0x1.102838p-19F + 0x1.2bec08p-12F;
  p = p * u + 0x1.f7a0c4p-9F;
  p = p * u + 0x1.b206fap-5F;
  p = p * u + 0x1.89c536p-3F;
  p = p * u + 0x1.20dd74p+0F;
  Register<float> q = u * 0x1.3e1aacp-15F + 0x1.355bc2p-10F;
  q = q * u + 0x1.ef8ab6p-7F;
  q = q * u + 0x1.d67f7ap-4F;
  q = q * u + 0x1.01e89ep-1F;
  q = q * u + 1.0F;
  const Register<float> one = broadcast(1.0F), end = x > 0.0F ? one : -one;
  return u > 15.5F ? end : z * p / q;
}
/// f64 is for tests: exact, one libm call per element.
inline Register<double> erf_of_scaled(Register<double> x) {
  for (int i = 0; i < Lanes<double>::kRegister; ++i) x[i] = std::erf(x[i] / std::numbers::sqrt2);
  return x;
}

template <class W>
Lanes<W> exact_weight(Lanes<W> x) {
  return x.map([](Register<W> r) { return erf_of_scaled(r); }) * W{0.5} + W{0.5};
}
template <class W>
Lanes<W> exact_slope(Lanes<W> x) {  // the normal density
  constexpr W scale = static_cast<W>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  return exp(x * x * W{-0.5}) * scale;
}

// (1 + tanh u) / 2 = sigmoid(2 u)
template <class W>
inline constexpr W kTwiceScale = static_cast<W>(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
template <class W>
inline constexpr W kCubic = static_cast<W>(0.044715);

template <class W>
Lanes<W> tanh_weight(Lanes<W> x) {
  return sigmoid(x * (x * x * kCubic<W> + W{1}) * kTwiceScale<W>);
}
template <class W>
Lanes<W> tanh_slope(Lanes<W> x, Lanes<W> weight) {
  return weight * (Lanes<W>(1) - weight) * (x * x * (3 * kCubic<W>)+W{1}) * kTwiceScale<W>;
}

template <bool kTanh, class S, class W = Wide<S>>
[[gnu::flatten]] void forward_part(const S* x, S* y, std::int64_t count) {
  for_lanes<W>(count, [&](std::int64_t i, auto n) {
    const Lanes<W> v = load(x + i, n);
    if constexpr (kTanh)
      store(y + i, v * tanh_weight(v), n);
    else
      store(y + i, v * exact_weight(v), n);
  });
}

template <bool kTanh, class S, class W = Wide<S>>
[[gnu::flatten]] void backward_part(const S* dy, const S* x, S* dx, std::int64_t count) {
  for_lanes<W>(count, [&](std::int64_t i, auto n) {
    const Lanes<W> v = load(x + i, n), d = load(dy + i, n);
    if constexpr (kTanh) {
      const Lanes<W> weight = tanh_weight(v);
      store(dx + i, d * (weight + v * tanh_slope(v, weight)), n);
    } else {
      store(dx + i, d * (exact_weight(v) + v * exact_slope(v)), n);
    }
  });
}

const char* form(bool tanh_form) { return tanh_form ? "tanh" : "none"; }

at::Tensor forward_of(const at::Tensor& x, bool tanh_form) {
  if (!x.is_cpu()) return at::gelu(x, form(tanh_form));
  const at::Tensor y = at::empty_like(x);
  by_dtype("gelu", x.scalar_type(), [&]<class S>(S) {
    const S* const from = x.const_data_ptr<S>();
    S* const to = y.mutable_data_ptr<S>();
    const auto part = tanh_form ? forward_part<true, S> : forward_part<false, S>;
    over_rows(x.numel(), 1,
              [=](std::int64_t first, std::int64_t last) { part(from + first, to + first, last - first); });
  });
  return y;
}

at::Tensor backward_of(const at::Tensor& dy, const at::Tensor& x, bool tanh_form) {
  if (!x.is_cpu()) return at::gelu_backward(dy, x, form(tanh_form));
  const at::Tensor dx = at::empty_like(x);
  by_dtype("gelu", x.scalar_type(), [&]<class S>(S) {
    const S *const from = x.const_data_ptr<S>(), *const dy_ = dy.const_data_ptr<S>();
    S* const to = dx.mutable_data_ptr<S>();
    const auto part = tanh_form ? backward_part<true, S> : backward_part<false, S>;
    over_rows(x.numel(), 1, [=](std::int64_t first, std::int64_t last) {
      part(dy_ + first, from + first, to + first, last - first);
    });
  });
  return dx;
}

struct Gelu : torch::autograd::Function<Gelu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, bool tanh_form) {
    ctx->save_for_backward({x});
    ctx->saved_data["tanh_form"] = tanh_form;
    return forward_of(x, tanh_form);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list dy) {
    require_first_order("gelu");
    const bool tanh_form = ctx->saved_data["tanh_form"].toBool();
    return {backward_of(dy[0].contiguous(), ctx->get_saved_variables()[0], tanh_form), at::Tensor()};
  }
};

}  // namespace

at::Tensor gelu(const at::Tensor& x, bool tanh_form) {
  require_dtype("gelu", x);
  require_contiguous("gelu", "x", x);
  return wants_grad(x) ? Gelu::apply(x, tanh_form) : forward_of(x, tanh_form);
}

}  // namespace trireme::kernels
