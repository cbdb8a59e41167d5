#include "trireme/train/step_agreement.hpp"

#include <limits>

#include <ATen/ops/full.h>
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

StepAgreement agree(const at::Tensor& loss_sum, std::optional<ExitCode> stop_asked, bool failed, const Mesh& mesh) {
  at::Tensor sums = at::zeros({4}, loss_sum.options());
  if (mesh.coord(Axis::tp) == 0) sums[0] = loss_sum;  // the same on all ranks of tp: counted once
  if (stop_asked) sums[*stop_asked == ExitCode::interrupted ? 1 : 2] = 1;
  if (failed) sums[3] = 1;
  sums = mesh.world_group().all_reduce_(sums).wait().cpu();
  StepAgreement agreed{.loss_sum = sums[0].item<double>(), .failed = sums[3].item<double>() > 0};
  if (sums[2].item<double>() > 0) agreed.stop = ExitCode::preempted;
  if (sums[1].item<double>() > 0) agreed.stop = ExitCode::interrupted;  // a person: not to be started again
  return agreed;
}

}  // namespace trireme
