#include "trireme/nn/norm.hpp"

#include "trireme/kernels/norm/layer_norm.hpp"
#include "trireme/kernels/norm/rms_norm.hpp"

namespace trireme {

RmsNorm::RmsNorm(std::int64_t features, double eps, const Parallel& parallel, AxisSet partial, NormScale scale)
    : eps_(eps), scale_(scale) {
  const Fill fill = scale == NormScale::weight ? Fill::ones : Fill::zeros;
  weight_D = declare("weight", {.shape = {features}, .partial = partial, .fill = fill}, parallel);
}

at::Tensor RmsNorm::scale_D() const { return scale_ == NormScale::weight ? weight_D : weight_D + 1; }

at::Tensor RmsNorm::forward(const at::Tensor& x) { return kernels::rms_norm(x, scale_D(), eps_); }

kernels::ResidualNorm RmsNorm::forward(const at::Tensor& x, const at::Tensor& residual) {
  return kernels::residual_norm(x, residual, scale_D(), {}, eps_);
}

Rebuild RmsNorm::rebuild(const at::Tensor& x) const {
  return {{x, scale_D()},
          [eps = eps_](const std::vector<at::Tensor>& from) { return kernels::rms_norm(from[0], from[1], eps); }};
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
