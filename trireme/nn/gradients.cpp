#include "trireme/nn/gradients.hpp"

#include <map>

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "trireme/kernels/dtype.hpp"

namespace trireme {
bool has_partial_gradient(const ParamSpec& spec, const ParamMesh& mesh) { return !mesh.partial_pieces(spec).empty(); }

void sum_partial_gradients(const std::vector<OwnGradient>& gradients, const ParamMesh& mesh) {
  // By group and dtype, in the same order on all ranks.
  std::map<std::pair<std::vector<int>, at::ScalarType>, std::vector<at::Tensor>> parts;
  for (const OwnGradient& gradient : gradients)
    for (ParamMesh::PartialPiece& partial : mesh.partial_pieces(*gradient.spec))
      parts[{std::move(partial.ranks), gradient.value.scalar_type()}].push_back(
          box_view(gradient.value, box_of(partial.piece.slices.local_slices)));
  for (auto& [key, tensors] : parts) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& t : tensors) flat.push_back(t.reshape(-1).to(kernels::wide_dtype(key.second)));
    const at::Tensor sum = mesh.mesh().group_of_ranks(key.first).all_reduce_(at::cat(flat)).wait();
    std::int64_t at = 0;
    for (at::Tensor& t : tensors) {
      t.copy_(sum.narrow(0, at, t.numel()).view(t.sizes()));
      at += t.numel();
    }
  }
}

void sum_partial_gradients(const std::vector<Param>& params, const ParamMesh& mesh) {
  std::vector<OwnGradient> gradients;
  for (const Param& param : params) {
    if (!param.value.requires_grad() || !has_partial_gradient(param.spec, mesh)) continue;
    // An unused parameter takes part with zeros, because the other ranks wait for it.
    if (!param.value.grad().defined()) at::Tensor(param.value).mutable_grad() = at::zeros_like(param.value);
    gradients.push_back({&param.spec, param.value.grad()});
  }
  sum_partial_gradients(gradients, mesh);
}

}  // namespace trireme
