#include "trireme/nn/norm.hpp"

#include "trireme/kernels/norm/layer_norm.hpp"
#include "trireme/kernels/norm/rms_norm.hpp"
#include "trireme/kernels/norm/unit_rms_norm.hpp"

namespace trireme {

RmsNorm::RmsNorm(std::int64_t features, double eps, const Parallel& parallel, AxisSet partial, NormScale scale)
    : eps_(eps), scale_(scale) {
  const Fill fill = scale == NormScale::weight ? Fill::ones : Fill::zeros;
  weight_D = declare("weight", {.shape = {features}, .partial = partial, .fill = fill}, parallel);
}

at::Tensor RmsNorm::forward(const at::Tensor& x) {
  return scale_ == NormScale::weight ? kernels::rms_norm(x, weight_D, eps_) : kernels::unit_rms_norm(x, weight_D, eps_);
}

kernels::ResidualNorm RmsNorm::forward(const at::Tensor& x, const at::Tensor& residual) {
  if (scale_ == NormScale::weight) return kernels::residual_norm(x, residual, weight_D, {}, eps_);
  const at::Tensor sum = residual.defined() ? x + residual : x;
  return {sum, kernels::unit_rms_norm(sum, weight_D, eps_)};
}

Rebuild RmsNorm::rebuild(const at::Tensor& x) const {
  return {{x, weight_D},
          [eps = eps_, norm = scale_ == NormScale::weight ? kernels::rms_norm : kernels::unit_rms_norm](
              const std::vector<at::Tensor>& from) { return norm(from[0], from[1], eps); }};
}

LayerNorm::LayerNorm(std::int64_t features, double eps, const Parallel& parallel, AxisSet partial) : eps_(eps) {
  weight_D = declare("weight", {.shape = {features}, .partial = partial, .fill = Fill::ones}, parallel);
  bias_D = declare("bias", {.shape = {features}, .partial = partial, .fill = Fill::zeros}, parallel);
}

at::Tensor LayerNorm::forward(const at::Tensor& x) { return kernels::layer_norm(x, weight_D, bias_D, eps_); }

kernels::ResidualNorm LayerNorm::forward(const at::Tensor& x, const at::Tensor& residual) {
  return kernels::residual_norm(x, residual, weight_D, bias_D, eps_);
}

Rebuild LayerNorm::rebuild(const at::Tensor& x) const {
  return {{x, weight_D, bias_D}, [eps = eps_](const std::vector<at::Tensor>& from) {
            return kernels::layer_norm(from[0], from[1], from[2], eps);
          }};
}

}  // namespace trireme
