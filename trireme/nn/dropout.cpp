#include "trireme/nn/dropout.hpp"

#include "trireme/base/error.hpp"
#include "trireme/nn/step_keys.hpp"

namespace trireme {

Dropout::Dropout(double p) : p_(p) {
  require<ConfigError>(p >= 0 && p < 1, "dropout probability ", p, ": must be at least 0 and below 1");
}

kernels::DropoutKey Dropout::key(const ForwardContext& context) const {
  kernels::DropoutKey key{context.seed, dropout_purpose(path(), context.step)};
  if (context.step_keys) key.purpose_on_device = context.step_keys->slot(path());
  return key;
}

at::Tensor Dropout::forward(const at::Tensor& x, const at::Tensor& rows, const ForwardContext& context) {
  return active(context) ? kernels::dropout(x, p_, key(context), {.rows = rows, .row_width = x.size(1)}) : x;
}

at::Tensor Dropout::forward_onto(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& rows,
                                 const ForwardContext& context) {
  if (!active(context)) return residual + x;
  return kernels::dropout(x, p_, key(context), {.rows = rows, .row_width = x.size(1)}, residual);
}

}  // namespace trireme
