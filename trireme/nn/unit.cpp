#include "trireme/nn/unit.hpp"

#include <torch/csrc/autograd/custom_function.h>

namespace trireme {
namespace {

/// Autograd stores no raw pointers, only intrusive ones.
struct VisitedUnit final : torch::CustomClassHolder {
  VisitedUnit(UnitHooks& h, std::size_t u) : hooks(h), unit(u) {}
  UnitHooks& hooks;
  const std::size_t unit;
};

struct Announce : torch::autograd::Function<Announce> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& y,
                            const c10::intrusive_ptr<VisitedUnit>& visited) {
    ctx->saved_data["visited"] = c10::IValue::make_capsule(visited);
    return y.view_as(y);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx,
                                               torch::autograd::tensor_list grads) {
    const auto capsule = ctx->saved_data["visited"].toCapsule();
    const auto& visited = static_cast<const VisitedUnit&>(*capsule);
    visited.hooks.before_backward(visited.unit);
    return {grads[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor announce_backward(const at::Tensor& y, UnitHooks& hooks, std::size_t unit) {
  return Announce::apply(y, c10::make_intrusive<VisitedUnit>(hooks, unit));
}

}  // namespace trireme
