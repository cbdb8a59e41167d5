#include "trireme/train/step_agreement.hpp"

#include <algorithm>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace trireme {
namespace {

/// Elements of the sum over all ranks; the peaks follow, one per rank, and then the bubbles.
enum Fact : std::int64_t { kLoss, kAuxiliary, kInterrupted, kPreempted, kFailed, kSave, kWriting, kFacts };

}  // namespace

TokenCount::TokenCount(const std::vector<Microbatch>& microbatches, bool failed, const Mesh& mesh, at::Device device) {
  double valid = failed ? std::numeric_limits<double>::quiet_NaN() : 0;
  // The ranks of tp and of the pipeline have the same tokens: counted once, but each may fail.
  if (mesh.coord(Axis::tp) == 0 && mesh.coord(Axis::pp) == 0)
    for (const Microbatch& microbatch : microbatches) valid += static_cast<double>(microbatch.valid);
  pending_.emplace(mesh.world_group().all_reduce_(at::full({1}, valid, at::TensorOptions(at::kDouble).device(device))));
}

const at::Tensor& TokenCount::total() {
  if (pending_) total_ = std::move(*pending_).wait()[0];
  pending_.reset();
  return total_;
}

StepAgreement agree(const at::Tensor& loss_sum, const StepFacts& own, const Mesh& mesh) {
  // One sum for everything: each rank writes its peak and bubble to elements of its own, for the maximum.
  const Group& world = mesh.world_group();
  at::Tensor host = at::zeros({kFacts + 2 * world.size()}, at::kDouble);
  auto* facts = host.mutable_data_ptr<double>();
  if (own.stop) facts[*own.stop == ExitCode::interrupted ? kInterrupted : kPreempted] = 1;
  facts[kFailed] = own.failed;
  facts[kSave] = own.save;
  facts[kWriting] = own.writing;
  facts[kFacts + world.rank()] = static_cast<double>(own.peak_bytes);
  facts[kFacts + world.size() + world.rank()] = own.bubble;
  at::Tensor all = host.to(loss_sum.device());
  if (mesh.coord(Axis::tp) == 0) all[kLoss] = loss_sum;  // the same on all ranks of tp: counted once
  if (own.auxiliary_sum.defined()) all[kAuxiliary] = own.auxiliary_sum;
  all = mesh.world_group().all_reduce_(all).wait().cpu();
  const auto* sums = all.const_data_ptr<double>();
  const auto most = [&](int list) {
    const double* const begin = sums + kFacts + list * world.size();
    return *std::max_element(begin, begin + world.size());
  };
  StepAgreement agreed{.loss_sum = sums[kLoss],
                       .auxiliary_sum = sums[kAuxiliary],
                       .failed = sums[kFailed] > 0,
                       .save = sums[kSave] > 0,
                       .writing = sums[kWriting] > 0,
                       .peak_bytes = static_cast<std::int64_t>(most(0)),
                       .bubble = most(1)};
  if (sums[kPreempted] > 0) agreed.stop = ExitCode::preempted;
  if (sums[kInterrupted] > 0) agreed.stop = ExitCode::interrupted;  // a person: not to be started again
  return agreed;
}

}  // namespace trireme
