#include "trireme/nn/gradients.hpp"

#include <map>

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "trireme/kernels/dtype.hpp"

namespace trireme {
namespace {

/// The pieces of this rank that others keep as well and see other tokens or queries for, and those others.
struct Shared {
  Piece piece;
  std::vector<int> ranks;
};

std::vector<Shared> shared_pieces(const ParamSpec& spec, const Mesh& mesh) {
  const Grid& grid = mesh.grid();
  std::vector<Shared> out;
  // Ranks that keep the same unit of a cut dim (KV heads) use it for other queries each: their gradients are parts,
  // too.
  const AxisSet axes = spec.partial | (cut_axes(spec.placement) & AxisSet(Axis::tp));
  if (grid.degree(axes) == 1) return out;
  const std::vector<Piece> own = pieces(spec.placement, spec.shape, grid, mesh.rank());
  for (std::size_t i = 0; i < own.size(); ++i) {
    std::vector<int> ranks = same_piece_peers(spec.placement, spec.shape, grid, mesh.rank(), i, axes);
    if (ranks.size() >= 2) out.push_back({own[i], std::move(ranks)});
  }
  return out;
}

}  // namespace

bool has_partial_gradient(const ParamSpec& spec, const Mesh& mesh) { return !shared_pieces(spec, mesh).empty(); }

void sum_partial_gradients(const std::vector<OwnGradient>& gradients, Mesh& mesh) {
  // By group and dtype, in an order that all ranks share.
  std::map<std::pair<std::vector<int>, at::ScalarType>, std::vector<at::Tensor>> parts;
  for (const OwnGradient& gradient : gradients)
    for (Shared& shared : shared_pieces(*gradient.spec, mesh))
      parts[{std::move(shared.ranks), gradient.value.scalar_type()}].push_back(
          box_view(gradient.value, box_of(shared.piece.slices.local_slices)));
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

void sum_partial_gradients(const std::vector<Param>& params, Mesh& mesh) {
  std::vector<OwnGradient> gradients;
  for (const Param& param : params) {
    if (!param.value.requires_grad() || !has_partial_gradient(param.spec, mesh)) continue;
    // A parameter that nothing used takes part all the same, with zeros: the others wait for it.
    if (!param.value.grad().defined()) at::Tensor(param.value).mutable_grad() = at::zeros_like(param.value);
    gradients.push_back({&param.spec, param.value.grad()});
  }
  sum_partial_gradients(gradients, mesh);
}

}  // namespace trireme
