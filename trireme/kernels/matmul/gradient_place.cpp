#include "trireme/kernels/matmul/gradient_place.hpp"

#include <ATen/ops/_sparse_coo_tensor_with_dims.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/kernels/matmul/fused_matmul.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/kernels/rows/on_cuda.hpp"

namespace trireme::kernels {
namespace {

bool can_fuse_into(const at::Tensor& value_NK, const at::Tensor& dy_TN, const at::Tensor& x_TK) {
  return (value_NK.scalar_type() == at::kFloat || value_NK.scalar_type() == dy_TN.scalar_type()) &&
         has_fused_matmul(dy_TN, x_TK);
}

}  // namespace

void weight_product_out(const at::Tensor& value_NK, const at::Tensor& dy_TN, const at::Tensor& x_TK, bool add) {
  if (can_fuse_into(value_NK, dy_TN, x_TK)) return weight_gradient_out(value_NK, dy_TN, x_TK, add);
  add ? add_matmul_tn_(value_NK, dy_TN, x_TK) : matmul_tn_out(value_NK, dy_TN, x_TK);
}

at::Tensor write_gradient(const at::Tensor& parameter, const GradientPlace::Write& write, bool reads_parameter) {
  const at::TensorOptions options = parameter.options().requires_grad(false);
  if (parameter.is_leaf())
    if (auto* const place = dynamic_cast<GradientPlace*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get())) {
      if (!place->defer(write, reads_parameter)) {
        const GradientPlace::Memory memory = place->to_write();
        write(memory.value, memory.is_empty);
      }
      return at::_sparse_coo_tensor_with_dims(parameter.dim(), 0, parameter.sizes(), options.layout(at::kSparse));
    }
  at::Tensor value = at::empty(parameter.sizes(), options);
  write(value, true);
  return value;
}

at::Tensor write_weight_gradient(const at::Tensor& weight, const at::Tensor& dy_TN, const at::Tensor& x_TK) {
  return write_gradient(weight, [dy_TN, x_TK](const at::Tensor& value_NK, bool is_empty) {
    weight_product_out(value_NK, dy_TN, x_TK, !is_empty);
  });
}

at::Tensor write_bias_gradient(const at::Tensor& bias, const at::Tensor& dy_TN) {
  return write_gradient(bias,
                        [dy_TN](const at::Tensor& value_N, bool is_empty) { sum_rows_out(value_N, dy_TN, !is_empty); });
}

at::Tensor detail::add_up_gradient(const at::Tensor& weight, const at::Tensor& partial) {
  if (!weight.requires_grad()) return {};
  return write_gradient(
      weight, [partial](const at::Tensor& value, bool is_empty) { add_up_on_cuda(value, partial, !is_empty); });
}

}  // namespace trireme::kernels
