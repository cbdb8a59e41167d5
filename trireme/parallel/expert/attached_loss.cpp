#include "trireme/parallel/expert/attached_loss.hpp"

#include <utility>

#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using Gradient = std::function<at::Tensor()>;

struct KeptGradient final : torch::CustomClassHolder {
  explicit KeptGradient(Gradient it) : gradient(std::move(it)) {}
  const Gradient gradient;
};

struct AttachedLoss : torch::autograd::Function<AttachedLoss> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y, const at::Tensor& loss,
                            const Gradient& gradient) {
    ctx->saved_data["gradient"] = c10::IValue::make_capsule(c10::make_intrusive<KeptGradient>(gradient));
    ctx->saved_data["dtype"] = static_cast<std::int64_t>(loss.scalar_type());
    return y.view_as(y);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto kept = ctx->saved_data["gradient"].toCapsule();
    const auto dtype = static_cast<at::ScalarType>(ctx->saved_data["dtype"].toInt());
    return {grads[0], static_cast<const KeptGradient&>(*kept).gradient().to(dtype), at::Tensor()};
  }
};

}  // namespace

at::Tensor attach_loss(const at::Tensor& y, const at::Tensor& loss, Gradient gradient) {
  if (!at::GradMode::is_enabled() || !loss.requires_grad()) return y;
  return AttachedLoss::apply(y, loss, std::move(gradient));
}

}  // namespace trireme
