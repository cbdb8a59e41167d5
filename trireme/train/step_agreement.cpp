#include "trireme/train/step_agreement.hpp"

#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/zeros.h>

namespace trireme {

TokenCount::TokenCount(const std::vector<Microbatch>& microbatches, bool failed, const Mesh& mesh, at::Device device) {
  double valid = failed ? std::numeric_limits<double>::quiet_NaN() : 0;
  for (const Microbatch& microbatch : microbatches) valid += static_cast<double>(microbatch.valid);
  pending_.emplace(mesh.token_group().all_reduce_(at::full({1}, valid, at::TensorOptions(at::kDouble).device(device))));
}

const at::Tensor& TokenCount::total() {
  if (pending_) total_ = std::move(*pending_).wait()[0];
  pending_.reset();
  return total_;
}

StepAgreement agree(const at::Tensor& loss_sum, const StepFacts& own, const Mesh& mesh) {
  // One sum for everything: each rank writes its peak to an element of its own, so that the maximum is known too.
  const Group& world = mesh.world_group();
  at::Tensor host = at::zeros({4 + world.size()}, at::kDouble);
  if (own.stop) host[*own.stop == ExitCode::interrupted ? 1 : 2] = 1;
  if (own.failed) host[3] = 1;
  host[4 + world.rank()] = static_cast<double>(own.peak_bytes);
  at::Tensor all = host.to(loss_sum.device());
  if (mesh.coord(Axis::tp) == 0) all[0] = loss_sum;  // the same on all ranks of tp: counted once
  all = mesh.world_group().all_reduce_(all).wait().cpu();
  StepAgreement agreed{.loss_sum = all[0].item<double>()};
  if (all[2].item<double>() > 0) agreed.stop = ExitCode::preempted;
  if (all[1].item<double>() > 0) agreed.stop = ExitCode::interrupted;  // a person: not to be started again
  agreed.failed = all[3].item<double>() > 0;
  agreed.peak_bytes = static_cast<std::int64_t>(all.slice(0, 4).max().item<double>());
  return agreed;
}

}  // namespace trireme
