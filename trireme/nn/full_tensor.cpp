#include "trireme/nn/full_tensor.hpp"

#include <algorithm>

#include <ATen/ops/zeros.h>

namespace trireme {

FullTensor gather_full_tensor(const at::Tensor& local, const ParamSpec& spec, Mesh& mesh) {
  const at::NoGradGuard no_grad;
  const AxisSet axes = cut_axes(spec.placement) | AxisSet(Axis::tp);
  Group& group = mesh.group(axes);
  const std::vector<Piece> own = pieces(spec.placement, spec.shape, mesh.grid(), mesh.rank());
  at::Tensor whole = at::zeros(spec.shape, local.options().requires_grad(false));
  for (std::size_t i = 0; i < own.size(); ++i) {
    // Of those that keep a piece, the first speaks for all.
    const std::vector<int> keepers = same_piece_peers(spec.placement, spec.shape, mesh.grid(), mesh.rank(), i, axes);
    if (*std::ranges::min_element(keepers) == mesh.rank())
      box_view(whole, box_of(own[i].slices.global_slices)).copy_(box_view(local, box_of(own[i].slices.local_slices)));
  }
  whole = group.all_reduce_(whole).wait();
  at::Tensor worst = at::zeros({1}, local.options().dtype(at::kDouble).requires_grad(false));
  for (const Piece& piece : own) {
    const at::Tensor difference =
        box_view(whole, box_of(piece.slices.global_slices)) - box_view(local, box_of(piece.slices.local_slices));
    if (difference.numel() > 0) worst = worst.maximum(difference.abs().amax().to(at::kDouble));
  }
  return {whole, group.all_reduce_(worst, Reduce::max).wait().item<double>()};
}

}  // namespace trireme
