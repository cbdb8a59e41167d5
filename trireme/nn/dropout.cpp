#include "trireme/nn/dropout.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

Dropout::Dropout(double p) : p_(p) {
  require<ConfigError>(p >= 0 && p < 1, "dropout probability ", p, ": must be at least 0 and below 1");
}

kernels::DropoutKey Dropout::key(const ForwardContext& context) const {
  return kernels::dropout_key(context.seed, text("dropout ", path(), " step ", context.step));
}

at::Tensor Dropout::forward(const at::Tensor& x, const at::Tensor& rows, const ForwardContext& context) {
  return active(context) ? kernels::dropout(x, p_, key(context), {.rows = rows, .row_width = x.size(1)}) : x;
}

}  // namespace trireme
