#include "trireme/nn/gradients.hpp"

#include <map>

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "trireme/kernels/dtype.hpp"

namespace trireme {
namespace {

/// A part of a local gradient that some ranks have to add up, and who they are.
struct Partial {
  at::Tensor part;
  std::vector<int> ranks;
};

std::vector<Partial> partials_of(const Param& param, const Mesh& mesh) {
  const Grid& grid = mesh.grid();
  std::vector<Partial> out;
  // Ranks that keep the same unit of a cut dim (KV heads) use it for other queries each: their gradients are parts,
  // too.
  const AxisSet axes = param.spec.partial | (cut_axes(param.spec.placement) & AxisSet(Axis::tp));
  if (grid.degree(axes) == 1) return out;
  const std::vector<Piece> own = pieces(param.spec.placement, param.spec.shape, grid, mesh.rank());
  for (std::size_t i = 0; i < own.size(); ++i) {
    std::vector<int> ranks = same_piece_peers(param.spec.placement, param.spec.shape, grid, mesh.rank(), i, axes);
    if (ranks.size() < 2) continue;
    // A parameter that nothing used takes part all the same, with zeros: the others wait for it.
    if (!param.value.grad().defined()) at::Tensor(param.value).mutable_grad() = at::zeros_like(param.value);
    out.push_back({box_view(param.value.grad(), box_of(own[i].slices.local_slices)), std::move(ranks)});
  }
  return out;
}

}  // namespace

void sum_partial_gradients(const std::vector<Param>& params, Mesh& mesh) {
  // By group and dtype, in an order that all ranks share.
  std::map<std::pair<std::vector<int>, at::ScalarType>, std::vector<at::Tensor>> parts;
  for (const Param& param : params) {
    if (!param.value.requires_grad()) continue;
    for (Partial& p : partials_of(param, mesh))
      parts[{std::move(p.ranks), param.value.scalar_type()}].push_back(std::move(p.part));
  }
  for (auto& [key, tensors] : parts) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& t : tensors) flat.push_back(t.reshape(-1).to(kernels::wide_dtype(key.second)));
    const at::Tensor sum = mesh.world_ranks_to_pg(key.first).all_reduce_(at::cat(flat)).wait();
    int64_t at = 0;
    for (at::Tensor& t : tensors) {
      t.copy_(sum.narrow(0, at, t.numel()).view(t.sizes()));
      at += t.numel();
    }
  }
}

}  // namespace trireme
