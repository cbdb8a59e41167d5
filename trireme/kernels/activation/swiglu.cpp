#include "trireme/kernels/activation/swiglu.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "trireme/kernels/rows/on_cuda.hpp"
#include "trireme/kernels/rows/rows.hpp"

// T rows, F hidden dim, G = 2 F
namespace trireme::kernels {
namespace {

using namespace detail;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

template <class S, class W = Wide<S>>
[[gnu::flatten]] void forward_row(const S* gate, const S* up, S* y, std::int64_t F) {
  for_lanes<W>(F, [&](std::int64_t i, auto n) {
    const Lanes<W> g = load(gate + i, n);
    store(y + i, g * sigmoid(g) * load(up + i, n), n);
  });
}

template <class S, class W = Wide<S>>
[[gnu::flatten]] void backward_row(const S* dy, const S* gate, const S* up, S* dgate, S* dup, std::int64_t F) {
  for_lanes<W>(F, [&](std::int64_t i, auto n) {
    const Lanes<W> g = load(gate + i, n), d = load(dy + i, n), s = sigmoid(g), gs = g * s;
    store(dgate + i, d * load(up + i, n) * (s + gs * (Lanes<W>(1) - s)), n);
    store(dup + i, d * gs, n);
  });
}

at::Tensor forward_of(const at::Tensor& gate_up_TG) {
  const std::int64_t T = gate_up_TG.size(0), F = gate_up_TG.size(1) / 2;
  if (has_swiglu_on_cuda(gate_up_TG)) return swiglu_on_cuda(gate_up_TG);
  if (!gate_up_TG.is_cpu()) return at::silu(gate_up_TG.narrow(1, 0, F)).mul_(gate_up_TG.narrow(1, F, F));
  const at::Tensor y_TF = at::empty({T, F}, gate_up_TG.options());
  by_dtype("swiglu", gate_up_TG.scalar_type(), [&]<class S>(S) {
    const S* const from = gate_up_TG.const_data_ptr<S>();
    S* const to = y_TF.mutable_data_ptr<S>();
    over_rows(T, F, [=](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) forward_row(from + 2 * t * F, from + (2 * t + 1) * F, to + t * F, F);
    });
  });
  return y_TF;
}

at::Tensor backward_of(const at::Tensor& dy_TF, const at::Tensor& gate_up_TG) {
  const std::int64_t T = gate_up_TG.size(0), F = gate_up_TG.size(1) / 2;
  if (has_swiglu_on_cuda(gate_up_TG)) return swiglu_backward_on_cuda(dy_TF, gate_up_TG);
  if (!gate_up_TG.is_cpu()) {
    const at::Tensor gate_TF = gate_up_TG.narrow(1, 0, F), up_TF = gate_up_TG.narrow(1, F, F);
    return at::cat({at::silu_backward(dy_TF * up_TF, gate_TF), at::silu(gate_TF).mul_(dy_TF)}, 1);
  }
  const at::Tensor d_TG = at::empty_like(gate_up_TG);
  by_dtype("swiglu", gate_up_TG.scalar_type(), [&]<class S>(S) {
    const S *const dy = dy_TF.const_data_ptr<S>(), *const from = gate_up_TG.const_data_ptr<S>();
    S* const to = d_TG.mutable_data_ptr<S>();
    over_rows(T, F, [=](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t)
        backward_row(dy + t * F, from + 2 * t * F, from + (2 * t + 1) * F, to + 2 * t * F, to + (2 * t + 1) * F, F);
    });
  });
  return d_TG;
}

struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up_TG) {
    ctx->save_for_backward({gate_up_TG});
    return forward_of(gate_up_TG);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list dy) {
    require_first_order("swiglu");
    return {backward_of(dy[0].contiguous(), ctx->get_saved_variables()[0])};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up_TG) {
  require_dtype("swiglu", gate_up_TG);
  require(gate_up_TG.dim() == 2 && gate_up_TG.size(1) % 2 == 0, "swiglu: gate_up of sizes ", gate_up_TG.sizes(),
          ": must be [T, 2F]");
  require_contiguous("swiglu", "gate_up", gate_up_TG);
  return wants_grad(gate_up_TG) ? Swiglu::apply(gate_up_TG) : forward_of(gate_up_TG);
}

}  // namespace trireme::kernels
