#include "trireme/kernels/optimizer/optimizer_step.hpp"

#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/where.h>

#include "trireme/kernels/optimizer/optimizer_step_cuda.hpp"
#include "trireme/kernels/rows/rows.hpp"

namespace trireme::kernels {
namespace {

using namespace detail;

constexpr std::int64_t kBlock = 4096;  // elements per iteration of a thread: all of its arrays fit in the L1 cache

void check_slices(const char* kernel, const StepSlices& slices, std::initializer_list<const at::Tensor*> states) {
  const at::Tensor& w = slices.weight;
  require(w.scalar_type() == at::kFloat || w.scalar_type() == at::kDouble, kernel, ": weights of dtype ",
          w.scalar_type(), ": must be float or double");
  const auto check = [&](const char* name, const at::Tensor& x) {
    require_dtype(kernel, x);
    require(x.numel() == w.numel() && x.device() == w.device(), kernel, ": ", name, " of ", x.numel(), " elements on ",
            x.device(), " beside ", w.numel(), " weights on ", w.device());
    require((x.scalar_type() == at::kDouble) == (w.scalar_type() == at::kDouble), kernel, ": ", name, " of dtype ",
            x.scalar_type(), " beside weights of ", w.scalar_type(), ": double goes with double alone");
    require_contiguous(kernel, name, x);
  };
  check("weight", w);
  check("gradient", slices.gradient);
  if (slices.model.defined()) check("model", slices.model);
  for (const at::Tensor* state : states)
    if (state->defined()) check("state", *state);
}

/// The factor as a number, on the CPU.
double number_of(const GradientFactor& factor) { return factor.value.defined() ? factor.value.item<double>() : 1.0; }

/// f(first, last) over parts of `n` elements.
template <class F>
void over_elements(std::int64_t n, const F& f) {
  over_rows((n + kBlock - 1) / kBlock, kBlock, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) f(block * kBlock, std::min(n, (block + 1) * kBlock));
  });
}

/// Adam's factors for the inner loop.
template <class W>
struct AdamTerms {
  W decay, l2, beta1, rest1, beta2, rest2, rate, root, eps, factor;
  AdamTerms(const AdamNumbers& n, double factor_)
      : decay(static_cast<W>(n.decoupled ? 1 - n.lr * n.weight_decay : 1)),
        l2(static_cast<W>(n.decoupled ? 0 : n.weight_decay)),
        beta1(static_cast<W>(n.beta1)),
        rest1(static_cast<W>(1 - n.beta1)),
        beta2(static_cast<W>(n.beta2)),
        rest2(static_cast<W>(1 - n.beta2)),
        rate(static_cast<W>(n.lr / (1 - std::pow(n.beta1, static_cast<double>(n.step))))),
        root(static_cast<W>(1 / std::sqrt(1 - std::pow(n.beta2, static_cast<double>(n.step))))),
        eps(static_cast<W>(n.eps)),
        factor(static_cast<W>(factor_)) {}
};

template <class T>
Lanes<T> sqrt_lanes(Lanes<T> x) {
  // One instruction per register, if the compiler sees the whole loop and need not set errno (CMakeLists.txt).
  return x.map([](Register<T> r) {
#pragma GCC unroll 16
    for (int i = 0; i < Lanes<T>::kRegister; ++i) r[i] = std::sqrt(r[i]);
    return r;
  });
}

template <class W, class G, class M, class V, class C>
[[gnu::flatten]] void adam_part(W* w, const G* g, M* m, V* v, C* copy, const AdamTerms<W>& t, std::int64_t count) {
  for_lanes<W>(count, [&](std::int64_t i, auto n) {
    Lanes<W> weight = load(w + i, n);
    const Lanes<W> gradient = load(g + i, n) * t.factor + weight * t.l2;
    const Lanes<W> first = load(m + i, n) * t.beta1 + gradient * t.rest1;
    const Lanes<W> second = load(v + i, n) * t.beta2 + gradient * gradient * t.rest2;
    weight = weight * t.decay - first * t.rate / (sqrt_lanes(second) * t.root + t.eps);
    store(m + i, first, n);
    store(v + i, second, n);
    store(w + i, weight, n);
    if (copy) store(copy + i, weight, n);
  });
}

template <class W, class G, class U, class C>
[[gnu::flatten]] void sgd_part(W* w, const G* g, U* u, C* copy, const SgdNumbers& numbers, W factor,
                               std::int64_t count) {
  const W decay = static_cast<W>(numbers.weight_decay), rate = static_cast<W>(numbers.lr);
  const W momentum = numbers.step == 1 ? W{0} : static_cast<W>(numbers.momentum),
          ahead = static_cast<W>(numbers.momentum);
  for_lanes<W>(count, [&](std::int64_t i, auto n) {
    Lanes<W> weight = load(w + i, n);
    Lanes<W> direction = load(g + i, n) * factor + weight * decay;
    if (u) {
      const Lanes<W> velocity = load(u + i, n) * momentum + direction;
      store(u + i, velocity, n);
      direction = numbers.nesterov ? direction + velocity * ahead : velocity;
    }
    weight = weight - direction * rate;
    store(w + i, weight, n);
    if (copy) store(copy + i, weight, n);
  });
}

/// f(S{}) for the dtype of an optional tensor used with weights of type W; an undefined one counts as W.
template <class W, class F>
void by_dtype_beside(const char* kernel, const at::Tensor& x, const F& f) {
  if (!x.defined() || x.scalar_type() == c10::CppTypeToScalarType<W>::value) return f(W{});
  if constexpr (std::is_same_v<W, float>) {
    if (x.scalar_type() == at::kBFloat16) return f(c10::BFloat16{});
    if (x.scalar_type() == at::kHalf) return f(c10::Half{});
  }
  require(false, kernel, ": dtype ", x.scalar_type(), " beside weights of another");
}

template <class S>
S* data_of(const at::Tensor& x) {
  return x.defined() ? x.mutable_data_ptr<S>() : nullptr;
}
template <class S>
S* behind(S* data, std::int64_t offset) {
  return data ? data + offset : nullptr;
}

/// Keeps the old value if the factor is NaN.
void assign_unless_skipped(const at::Tensor& x, const at::Tensor& updated, const GradientFactor& factor) {
  x.copy_(factor.value.defined() ? at::where(at::isnan(factor.value), x, updated.to(x.scalar_type())) : updated);
}

at::Tensor scaled_gradient(const StepSlices& slices, const GradientFactor& factor) {
  const at::Tensor g = slices.gradient.to(slices.weight.scalar_type());
  return factor.value.defined() ? g * factor.value.to(g.scalar_type()) : g;
}

void adam_on_cpu(const StepSlices& slices, const at::Tensor& m, const at::Tensor& v, const AdamNumbers& numbers,
                 const GradientFactor& factor) {
  const double scale = number_of(factor);
  if (std::isnan(scale)) return;
  const auto run = [&]<class W>(W) {
    by_dtype_beside<W>("adam_step", slices.gradient, [&]<class G>(G) {
      by_dtype_beside<W>("adam_step", m, [&]<class M>(M) {
        by_dtype_beside<W>("adam_step", slices.model, [&]<class C>(C) {
          W* const w = data_of<W>(slices.weight);
          G* const g = data_of<G>(slices.gradient);
          M *const first = data_of<M>(m), *const second = data_of<M>(v);
          C* const copy = data_of<C>(slices.model);
          const AdamTerms<W> terms(numbers, scale);
          over_elements(slices.weight.numel(), [&](std::int64_t a, std::int64_t b) {
            adam_part(w + a, g + a, first + a, second + a, behind(copy, a), terms, b - a);
          });
        });
      });
    });
  };
  slices.weight.scalar_type() == at::kDouble ? run(double{}) : run(float{});
}

// On GPUs: a sequence of ATen operations.
void sgd_elsewhere(const StepSlices& slices, const at::Tensor& u, const SgdNumbers& n, const GradientFactor& factor) {
  const at::Tensor& w = slices.weight;
  at::Tensor direction = scaled_gradient(slices, factor) + w * n.weight_decay;
  if (u.defined()) {
    const at::Tensor velocity = n.step == 1 ? direction : u.to(w.scalar_type()) * n.momentum + direction;
    direction = n.nesterov ? direction + velocity * n.momentum : velocity;
    assign_unless_skipped(u, velocity, factor);
  }
  assign_unless_skipped(w, w - direction * n.lr, factor);
  if (slices.model.defined()) slices.model.copy_(w);
}

}  // namespace

void adam_step(const StepSlices& slices, const at::Tensor& m, const at::Tensor& v, const AdamNumbers& numbers,
               const GradientFactor& factor) {
  const AdamSlice one{slices, m, v, numbers.weight_decay};
  adam_steps(std::span(&one, 1), numbers, factor);
}

void adam_steps(std::span<const AdamSlice> slices, AdamNumbers numbers, const GradientFactor& factor) {
  if (slices.empty()) return;
  for (const AdamSlice& slice : slices) {
    check_slices("adam_step", slice.values, {&slice.m, &slice.v});
    require(slice.m.defined() && slice.v.defined() && numbers.step >= 1, "adam_step: step ", numbers.step,
            ": moments are needed, and a step from 1 on");
    require(slice.v.scalar_type() == slice.m.scalar_type(), "adam_step: moments of dtypes ", slice.m.scalar_type(),
            " and ", slice.v.scalar_type());
  }
  const auto with_decay = [&numbers](double weight_decay) {
    numbers.weight_decay = weight_decay;
    return numbers;
  };
  if (!slices[0].values.weight.is_cpu()) {
    std::vector<AdamDecay> decays;
    for (const AdamSlice& slice : slices) {
      const AdamTerms<double> t(with_decay(slice.weight_decay), 1);
      decays.push_back({t.decay, t.l2});
    }
    const AdamTerms<double> t(numbers, 1);
    return adam_on_cuda(slices, decays, {t.beta1, t.rest1, t.beta2, t.rest2, t.rate, t.root, t.eps}, factor);
  }
  for (const AdamSlice& slice : slices)
    adam_on_cpu(slice.values, slice.m, slice.v, with_decay(slice.weight_decay), factor);
}

void sgd_step(const StepSlices& slices, const at::Tensor& u, const SgdNumbers& numbers, const GradientFactor& factor) {
  check_slices("sgd_step", slices, {&u});
  require(u.defined() || numbers.momentum == 0, "sgd_step: momentum ", numbers.momentum, " without its state");
  if (!slices.weight.is_cpu()) return sgd_elsewhere(slices, u, numbers, factor);
  const double scale = number_of(factor);
  if (std::isnan(scale)) return;
  const auto run = [&]<class W>(W) {
    by_dtype_beside<W>("sgd_step", slices.gradient, [&]<class G>(G) {
      by_dtype_beside<W>("sgd_step", u, [&]<class U>(U) {
        by_dtype_beside<W>("sgd_step", slices.model, [&]<class C>(C) {
          W* const w = data_of<W>(slices.weight);
          G* const g = data_of<G>(slices.gradient);
          U* const velocity = data_of<U>(u);
          C* const copy = data_of<C>(slices.model);
          over_elements(slices.weight.numel(), [&](std::int64_t a, std::int64_t b) {
            sgd_part(w + a, g + a, behind(velocity, a), behind(copy, a), numbers, static_cast<W>(scale), b - a);
          });
        });
      });
    });
  };
  slices.weight.scalar_type() == at::kDouble ? run(double{}) : run(float{});
}

}  // namespace trireme::kernels
