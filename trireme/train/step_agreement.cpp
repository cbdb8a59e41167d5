#include "trireme/train/step_agreement.hpp"

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

StepAgreement agree(const at::Tensor& loss_sum, std::optional<ExitCode> stop_asked, const Mesh& mesh) {
  at::Tensor sums = at::zeros({3}, loss_sum.options());
  if (mesh.coord(Axis::tp) == 0) sums[0] = loss_sum;  // the same on all ranks of tp: counted once
  if (stop_asked) sums[*stop_asked == ExitCode::interrupted ? 1 : 2] = 1;
  sums = mesh.world_group().all_reduce_(sums).wait().cpu();
  StepAgreement agreed{.loss_sum = sums[0].item<double>()};
  if (sums[2].item<double>() > 0) agreed.stop = ExitCode::preempted;
  if (sums[1].item<double>() > 0) agreed.stop = ExitCode::interrupted;  // a person: not to be started again
  return agreed;
}

}  // namespace trireme
