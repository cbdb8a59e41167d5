#include "trireme/parallel/tensor/gradients.hpp"

#include <map>

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "trireme/kernels/rows/dtype.hpp"

namespace trireme {

PartialSums::PartialSums(const std::vector<const ParamSpec*>& specs, const ParamMesh& mesh) {
  std::map<std::vector<int>, std::vector<Part>> by_ranks;  // in the same order on all ranks
  for (std::size_t i = 0; i < specs.size(); ++i)
    for (ParamMesh::PartialPiece& partial : mesh.partial_pieces(*specs[i]))
      by_ranks[std::move(partial.ranks)].push_back({i, box_of(partial.piece.slices.local_slices)});
  for (auto& [ranks, parts] : by_ranks) sums_.push_back({&mesh.mesh().group_of_ranks(ranks), std::move(parts)});
}

void PartialSums::sum(const std::function<at::Tensor(std::size_t)>& gradient) const {
  for (const Sum& sum : sums_) {
    std::vector<at::Tensor> views, flat;
    for (const Part& part : sum.parts) {
      const at::Tensor whole = gradient(part.param);
      views.push_back(box_view(whole, part.box));
      flat.push_back(views.back().reshape(-1).to(kernels::wide_dtype(whole.scalar_type())));
    }
    const at::Tensor total = sum.group->all_reduce_(at::cat(flat)).wait();
    std::int64_t begin = 0;
    for (at::Tensor& view : views) {
      view.copy_(total.narrow(0, begin, view.numel()).view(view.sizes()));
      begin += view.numel();
    }
  }
}

void sum_partial_gradients(const std::vector<Param>& params, const ParamMesh& mesh) {
  std::vector<const ParamSpec*> specs;
  std::vector<at::Tensor> trained;
  for (const Param& param : params)
    if (param.value.requires_grad()) {
      specs.push_back(&param.spec);
      trained.push_back(param.value);
    }
  PartialSums(specs, mesh).sum([&](std::size_t i) {
    // An unused parameter takes part with zeros, because the other ranks wait for it.
    if (!trained[i].grad().defined()) trained[i].mutable_grad() = at::zeros_like(trained[i]);
    return trained[i].grad();
  });
}

}  // namespace trireme
