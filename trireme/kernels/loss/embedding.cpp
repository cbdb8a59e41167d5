#include "trireme/kernels/loss/embedding.hpp"

#include <ATen/ops/embedding_dense_backward.h>

#include "trireme/kernels/matmul/gradient_place.hpp"
#include "trireme/kernels/rows/rows.hpp"

namespace trireme::kernels {
namespace {

using namespace detail;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct Embedding : torch::autograd::Function<Embedding> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weight_VD, const at::Tensor& ids_T) {
    ctx->save_for_backward({weight_VD, ids_T});
    return weight_VD.index_select(0, ids_T);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list dy) {
    require_first_order("embedding");
    const auto kept = ctx->get_saved_variables();
    const at::Tensor ids_T = kept[1];
    const at::Tensor dweight_VD = write_gradient(kept[0], [ids_T, dy_TD = dy[0]](at::Tensor value_VD, bool is_empty) {
      if (value_VD.is_cpu()) {
        if (is_empty) value_VD.zero_();
        value_VD.index_add_(0, ids_T, dy_TD.to(value_VD.scalar_type()));
        return;
      }
      // On CUDA index_add_ adds in arbitrary order. This function does not, but rounds partial sums to its own dtype:
      // it is given that of the gradient.
      const at::Tensor wide_TD = dy_TD.to(value_VD.scalar_type()).contiguous();
      const at::Tensor sum_VD = at::embedding_dense_backward(wide_TD, ids_T, value_VD.size(0), -1, false);
      is_empty ? value_VD.copy_(sum_VD) : value_VD.add_(sum_VD);
    });
    return {dweight_VD, at::Tensor()};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& weight_VD, const at::Tensor& ids_T) {
  require_dtype("embedding", weight_VD);
  require(weight_VD.dim() == 2 && ids_T.dim() == 1 && ids_T.scalar_type() == at::kLong, "embedding: weight of sizes ",
          weight_VD.sizes(), " and ids of sizes ", ids_T.sizes(), ", ", ids_T.scalar_type(),
          ": must be a matrix and a list of whole numbers (long)");
  return wants_grad(weight_VD) ? Embedding::apply(weight_VD, ids_T) : weight_VD.index_select(0, ids_T);
}

}  // namespace trireme::kernels
