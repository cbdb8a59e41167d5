#include "trireme/parallel/tensor/full_tensor.hpp"

#include <ATen/ops/zeros.h>

namespace trireme {

FullTensor gather_full_tensor(const at::Tensor& local, const ParamSpec& spec, const ParamMesh& mesh) {
  const at::NoGradGuard no_grad;
  Group& group = mesh.model_group(spec);
  const std::vector<Piece> own = mesh.pieces(spec);
  at::Tensor whole = at::zeros(spec.shape, local.options().requires_grad(false));
  for (std::size_t i = 0; i < own.size(); ++i)
    if (mesh.is_first_holder(spec, i))
      box_view(whole, box_of(own[i].slices.global_slices)).copy_(box_view(local, box_of(own[i].slices.local_slices)));
  whole = group.all_reduce_(whole).wait();
  at::Tensor worst = at::zeros({1}, local.options().dtype(at::kDouble).requires_grad(false));
  for (const Piece& piece : own) {
    const at::Tensor difference =
        box_view(whole, box_of(piece.slices.global_slices)) - box_view(local, box_of(piece.slices.local_slices));
    if (difference.numel() > 0) worst = worst.maximum(difference.abs().amax().to(at::kDouble));
  }
  return {whole, group.all_reduce_(worst, Reduce::max).wait().item<double>()};
}

void copy_own_part(const at::Tensor& full, const ParamSpec& spec, const ParamMesh& mesh, const at::Tensor& local) {
  for (const Piece& piece : mesh.pieces(spec))
    box_view(local, box_of(piece.slices.local_slices)).copy_(box_view(full, box_of(piece.slices.global_slices)));
}

}  // namespace trireme
