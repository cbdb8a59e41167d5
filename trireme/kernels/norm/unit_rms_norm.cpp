#include "trireme/kernels/norm/unit_rms_norm.hpp"

#include <torch/csrc/autograd/custom_function.h>

#include "trireme/kernels/norm/rms_norm.hpp"
#include "trireme/kernels/rows/dtype.hpp"
#include "trireme/kernels/rows/first_order.hpp"

namespace trireme::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

at::Tensor in_wide(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  const at::ScalarType wide = wide_dtype(x.scalar_type());
  return rms_norm(x.to(wide), weight_D.to(wide) + 1, eps);
}

/// Of 16 bits: stores the inputs as they are, and widens them again in backward.
struct UnitRmsNorm : torch::autograd::Function<UnitRmsNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight_D, double eps) {
    ctx->save_for_backward({x, weight_D});
    ctx->saved_data["eps"] = eps;
    return in_wide(x, weight_D, eps).to(x.scalar_type());
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    require_first_order("unit_rms_norm");
    const tensor_list kept = ctx->get_saved_variables();
    const at::ScalarType dtype = kept[0].scalar_type(), wide = wide_dtype(dtype);
    const at::Tensor x = kept[0].to(wide), dy = grads[0].to(wide);
    const at::Tensor rstd = x.square().mean(-1, /*keepdim=*/true).add_(ctx->saved_data["eps"].toDouble()).rsqrt_();
    const at::Tensor h = x * rstd, g = dy * (kept[1].to(wide) + 1);
    const at::Tensor dx = (g - h * (g * h).mean(-1, /*keepdim=*/true)).mul_(rstd);
    return {dx.to(dtype), (dy * h).flatten(0, -2).sum(0).to(dtype), at::Tensor()};
  }
};

}  // namespace

at::Tensor unit_rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  return is_reduced(x.scalar_type()) ? UnitRmsNorm::apply(x, weight_D, eps) : in_wide(x, weight_D, eps);
}

}  // namespace trireme::kernels
