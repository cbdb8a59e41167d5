#include "trireme/train/step_agreement.hpp"

#include <ATen/ops/max.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

namespace trireme {

TokenCount::TokenCount(const std::vector<Microbatch>& microbatches, const Mesh& mesh, at::Device device) {
  std::int64_t valid = 0;
  for (const Microbatch& microbatch : microbatches) valid += microbatch.valid;
  pending_.emplace(mesh.token_group().all_reduce_(at::tensor({valid}, at::TensorOptions(at::kLong).device(device))));
}

const at::Tensor& TokenCount::total() {
  if (pending_) total_ = std::move(*pending_).wait()[0].to(at::kDouble);
  pending_.reset();
  return total_;
}

StepAgreement agree(const at::Tensor& loss_sum, bool stop_asked, std::int64_t peak_bytes, const Mesh& mesh) {
  // One sum for everything: each rank writes its peak to an element of its own, so that the maximum is known too.
  const Group& world = mesh.world_group();
  at::Tensor host = at::zeros({2 + world.size()}, at::kDouble);
  host[1] = stop_asked ? 1 : 0;
  host[2 + world.rank()] = static_cast<double>(peak_bytes);
  at::Tensor all = host.to(loss_sum.device());
  if (mesh.coord(Axis::tp) == 0) all[0] = loss_sum;  // the same on all ranks of tp: counted once
  all = mesh.world_group().all_reduce_(all).wait().cpu();
  return {.loss_sum = all[0].item<double>(),
          .stop = all[1].item<double>() > 0,
          .peak_bytes = static_cast<std::int64_t>(all.slice(0, 2).max().item<double>())};
}

}  // namespace trireme
