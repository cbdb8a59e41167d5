#include "trireme/kernels/matmul/grouped_linear.hpp"

#include <numeric>
#include <utility>

#include <ATen/Context.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/matmul/gradient_place.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/kernels/rows/first_order.hpp"
#include "trireme/kernels/rows/on_cuda.hpp"

namespace trireme::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using RowCounts = std::vector<std::int64_t>;

constexpr std::int64_t kAlign = 8;  // elements: 16 bytes

/// Calls visit(expert, first row, rows) for the experts that have rows.
template <class Visit>
void for_each_group(const RowCounts& rows, Visit visit) {
  std::int64_t first = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    if (rows[e] > 0) visit(static_cast<std::int64_t>(e), first, rows[e]);
    first += rows[e];
  }
}

/// [rows, n] = x [rows, k] matrices [E, k, n], each group of rows with its matrix. On a GPU not by matmul_nn(), which
/// chooses an algorithm for each shape: the numbers of rows differ from step to step.
at::Tensor product(const at::Tensor& x, const at::Tensor& matrices, const RowCounts& rows) {
  const at::Tensor y = at::empty({x.size(0), matrices.size(2)}, x.options().requires_grad(false));
  for_each_group(rows, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
    at::Tensor out = y.narrow(0, first, count);
    const at::Tensor in = x.narrow(0, first, count);
    if (x.is_cuda())
      at::mm_out(out, in, matrices[e]);
    else
      out.copy_(matmul_nn(in, matrices[e]));
  });
  return y;
}

void write_gradients(const at::Tensor& out, bool is_empty, const at::Tensor& dy, const at::Tensor& x,
                     const RowCounts& rows) {
  if (is_empty)
    for (std::size_t e = 0; e < rows.size(); ++e)
      if (rows[e] == 0) out[static_cast<std::int64_t>(e)].zero_();
  for_each_group(rows, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
    const at::Tensor dy_e = dy.narrow(0, first, count), x_e = x.narrow(0, first, count);
    is_empty ? matmul_tn_out(out[e], dy_e, x_e) : add_matmul_tn_(out[e], dy_e, x_e);
  });
}

struct GroupedLinear : torch::autograd::Function<GroupedLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const RowCounts& rows) {
    ctx->saved_data["rows"] = rows;
    ctx->save_for_backward(weight.requires_grad() ? tensor_list{weight, x} : tensor_list{weight});
    return product(x, weight.transpose(1, 2), rows);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    require_first_order("linear layers of experts");
    const RowCounts rows = ctx->saved_data["rows"].toIntVector();
    const tensor_list kept = ctx->get_saved_variables();
    const at::Tensor& weight = kept[0];
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx, dweight;
    if (ctx->needs_input_grad(0)) dx = product(dy, weight, rows);
    if (ctx->needs_input_grad(1))
      dweight = write_gradient(weight, [dy, x = kept[1], rows](const at::Tensor& value, bool is_empty) {
        write_gradients(value, is_empty, dy, x, rows);
      });
    return {dx, dweight, at::Tensor()};
  }
};

/// value [E, N, K] = (or +=) the product of each group of rows of dy [T, N] with the same rows of x [T, K].
void write_gradients_on_device(const at::Tensor& value, bool is_empty, const at::Tensor& dy, const at::Tensor& x,
                               const at::Tensor& ends) {
  const at::Tensor product = at::_grouped_mm(dy.t(), x, ends);
  is_empty ? value.copy_(product) : value.add_(product);
}

struct GroupedLinearOnDevice : torch::autograd::Function<GroupedLinearOnDevice> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& ends) {
    ctx->save_for_backward(weight.requires_grad() ? tensor_list{ends, weight, x} : tensor_list{ends, weight});
    return at::_grouped_mm(x, weight.transpose(1, 2), ends);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    require_first_order("linear layers of experts");
    const tensor_list kept = ctx->get_saved_variables();
    const at::Tensor &ends = kept[0], &weight = kept[1], dy = grads[0].contiguous();
    at::Tensor dx, dweight;
    if (ctx->needs_input_grad(0)) dx = at::_grouped_mm(dy, weight, ends);
    if (ctx->needs_input_grad(1))
      dweight = write_gradient(weight, [dy, x = kept[2], ends](const at::Tensor& value, bool is_empty) {
        write_gradients_on_device(value, is_empty, dy, x, ends);
      });
    return {dx, dweight, at::Tensor()};
  }
};

}  // namespace

bool takes_rows_on_device(const at::Tensor& x, const at::Tensor& weight_ENK) {
  return x.is_cuda() && x.scalar_type() == at::kBFloat16 && weight_ENK.scalar_type() == at::kBFloat16 &&
         weight_ENK.size(1) % kAlign == 0 && weight_ENK.size(2) % kAlign == 0;
}

bool has_products_of_rows_on_device(at::Device device, std::int64_t features, std::int64_t hidden) {
  if (!device.is_cuda() || !at::hasCUDA() || features % kAlign != 0 || hidden % kAlign != 0) return false;
  // On others libtorch reads the ends of rows on the host.
  const int capability = detail::cuda_capability(device);
  return capability == 90 || capability == 100;
}

at::Tensor grouped_linear(const at::Tensor& x, const at::Tensor& weight_ENK, const at::Tensor& ends_E) {
  require(x.dim() == 2 && weight_ENK.dim() == 3 && x.size(1) == weight_ENK.size(2) &&
              ends_E.sizes() == at::IntArrayRef{weight_ENK.size(0)} && ends_E.scalar_type() == at::kInt &&
              takes_rows_on_device(x, weight_ENK),
          "linear layers of experts: input of sizes ", x.sizes(), " for weights of sizes ", weight_ENK.sizes(), " and ",
          ends_E.sizes(), " ends of rows on the device");
  const bool wants_grad = at::GradMode::is_enabled() && (x.requires_grad() || weight_ENK.requires_grad());
  return wants_grad ? GroupedLinearOnDevice::apply(x, weight_ENK, ends_E)
                    : at::_grouped_mm(x, weight_ENK.transpose(1, 2), ends_E);
}

at::Tensor grouped_linear(const at::Tensor& x, const at::Tensor& weight_ENK, const RowCounts& rows) {
  require(x.dim() == 2 && weight_ENK.dim() == 3 && x.size(1) == weight_ENK.size(2) &&
              static_cast<std::int64_t>(rows.size()) == weight_ENK.size(0) &&
              std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == x.size(0),
          "linear layers of experts: input of sizes ", x.sizes(), " for weights of sizes ", weight_ENK.sizes(), " and ",
          rows.size(), " counts of rows: must be [rows, inputs], [experts, outputs, inputs], and a count per expert");
  const bool wants_grad = at::GradMode::is_enabled() && (x.requires_grad() || weight_ENK.requires_grad());
  return wants_grad ? GroupedLinear::apply(x, weight_ENK, rows) : product(x, weight_ENK.transpose(1, 2), rows);
}

}  // namespace trireme::kernels
