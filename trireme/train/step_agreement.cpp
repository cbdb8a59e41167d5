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

StepAgreement agree(const at::Tensor& loss_sum, bool stop_asked, const Mesh& mesh) {
  at::Tensor both = at::zeros({2}, loss_sum.options());
  if (mesh.coord(Axis::tp) == 0) both[0] = loss_sum;  // the same on all ranks of tp: counted once
  if (stop_asked) both[1] = 1;
  both = mesh.world_group().all_reduce_(both).wait().cpu();
  return {both[0].item<double>(), both[1].item<double>() > 0};
}

}  // namespace trireme
