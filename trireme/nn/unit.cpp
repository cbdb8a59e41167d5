#include "trireme/nn/unit.hpp"

#include <torch/csrc/autograd/custom_function.h>

namespace trireme {
namespace {

struct Announce : torch::autograd::Function<Announce> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& y, std::int64_t hooks,
                            std::int64_t unit) {
    ctx->saved_data["hooks"] = hooks;
    ctx->saved_data["unit"] = unit;
    return y.view_as(y);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx,
                                               torch::autograd::tensor_list grads) {
    // An address, because autograd keeps no other pointers of ours; the hooks outlive the graph as the weights do.
    auto* hooks = reinterpret_cast<UnitHooks*>(ctx->saved_data["hooks"].toInt());
    hooks->before_backward(static_cast<std::size_t>(ctx->saved_data["unit"].toInt()));
    return {grads[0], at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor announce_backward(const at::Tensor& y, UnitHooks& hooks, std::size_t unit) {
  return Announce::apply(y, reinterpret_cast<std::int64_t>(&hooks), static_cast<std::int64_t>(unit));
}

}  // namespace trireme
