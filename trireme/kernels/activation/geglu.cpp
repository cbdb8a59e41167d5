#include "trireme/kernels/activation/geglu.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/rows/first_order.hpp"

// T rows, F hidden dim, G = 2 F
namespace trireme::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

const char* form(bool tanh) { return tanh ? "tanh" : "none"; }

struct Geglu : torch::autograd::Function<Geglu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up_TG, bool tanh) {
    ctx->save_for_backward({gate_up_TG});
    ctx->saved_data["tanh"] = tanh;
    const std::int64_t F = gate_up_TG.size(1) / 2;
    return at::gelu(gate_up_TG.narrow(1, 0, F), form(tanh)).mul_(gate_up_TG.narrow(1, F, F));
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list dy) {
    require_first_order("geglu");
    const at::Tensor gate_up_TG = ctx->get_saved_variables()[0];
    const char* const approximate = form(ctx->saved_data["tanh"].toBool());
    const std::int64_t F = gate_up_TG.size(1) / 2;
    const at::Tensor gate_TF = gate_up_TG.narrow(1, 0, F), up_TF = gate_up_TG.narrow(1, F, F);
    return {
        at::cat({at::gelu_backward(dy[0] * up_TF, gate_TF, approximate), at::gelu(gate_TF, approximate).mul_(dy[0])},
                1),
        at::Tensor()};
  }
};

}  // namespace

at::Tensor geglu(const at::Tensor& gate_up_TG, bool tanh) {
  require(gate_up_TG.dim() == 2 && gate_up_TG.size(1) % 2 == 0, "geglu: gate_up of sizes ", gate_up_TG.sizes(),
          ": must be [T, 2F]");
  return Geglu::apply(gate_up_TG, tanh);
}

}  // namespace trireme::kernels
