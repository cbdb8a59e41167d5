#include "trireme/train/step/step_agreement.hpp"

#include <algorithm>
#include <limits>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace trireme {
namespace {

/// Elements of the sum over all ranks. Lists with one element per rank follow.
enum Fact : std::int64_t {
  kLoss,
  kAuxiliary,
  kInterrupted,
  kPreempted,
  kFailed,
  kSave,
  kWriting,
  kElapsed,
  kData,
  kForward,
  kBackward,
  kIdle,
  kWaited,
  kUpdate,
  kFacts
};
enum List : std::int64_t { kPeaks, kBubbles, kOwnWork, kLastActions, kLists };

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

PendingAgreement start_agreement(const at::Tensor& loss_sum, const at::Tensor& norm, const at::Tensor& tokens,
                                 const StepFacts& own, const Mesh& mesh) {
  // One sum for everything: in the lists each rank writes to an element of its own, and the others add zero.
  const Group& world = mesh.world_group();
  const at::Device device = loss_sum.device();
  // Pinned: a copy from or to other memory waits for the device.
  const auto on_host = at::TensorOptions(at::kDouble).pinned_memory(device.is_cuda());
  at::Tensor host = at::zeros({kFacts + kLists * world.size()}, on_host);
  auto* facts = host.mutable_data_ptr<double>();
  if (own.stop) facts[*own.stop == ExitCode::interrupted ? kInterrupted : kPreempted] = 1;
  facts[kFailed] = own.failed;
  facts[kSave] = own.save;
  facts[kWriting] = own.writing;
  facts[kElapsed] = own.time.elapsed;
  facts[kData] = own.time.data;
  facts[kForward] = own.time.forward;
  facts[kBackward] = own.time.backward;
  facts[kIdle] = own.time.idle;
  facts[kWaited] = own.time.waited;
  facts[kUpdate] = own.time.update;
  double* const of_rank = facts + kFacts + world.rank();
  of_rank[kPeaks * world.size()] = static_cast<double>(own.peak_bytes);
  of_rank[kBubbles * world.size()] = own.bubble;
  of_rank[kOwnWork * world.size()] = own.time.own_work();
  of_rank[kLastActions * world.size()] = own.last_action;
  at::Tensor all = host.to(device, /*non_blocking=*/true);
  if (mesh.coord(Axis::tp) == 0) all[kLoss] = loss_sum;  // the same on all ranks of tp: counted once
  if (own.auxiliary_sum.defined()) all[kAuxiliary] = own.auxiliary_sum;
  all = at::cat({mesh.world_group().all_reduce_(all).wait(), at::stack({norm, tokens})});
  PendingAgreement pending;
  pending.ranks_ = world.size();
  pending.host_ = at::empty(all.sizes(), on_host).copy_(all, /*non_blocking=*/true);
  if (device.is_cuda()) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    pending.copied_.emplace(device.type());
    pending.copied_->record(guard.getStream(device));
  }
  return pending;
}

StepAgreement agree(const at::Tensor& loss_sum, const StepFacts& own, const Mesh& mesh) {
  const at::Tensor none = at::zeros({}, loss_sum.options());
  return start_agreement(loss_sum, none, none, own, mesh).read();
}

StepAgreement PendingAgreement::read() && {
  if (copied_) copied_->synchronize();
  const auto* sums = host_.const_data_ptr<double>();
  const auto list = [&](List which) {
    const double* const begin = sums + kFacts + which * ranks_;
    return std::vector<double>(begin, begin + ranks_);
  };
  StepAgreement agreed{.loss_sum = sums[kLoss],
                       .auxiliary_sum = sums[kAuxiliary],
                       .failed = sums[kFailed] > 0,
                       .save = sums[kSave] > 0,
                       .writing = sums[kWriting] > 0,
                       .norm = sums[kFacts + kLists * ranks_],
                       .tokens = sums[kFacts + kLists * ranks_ + 1],
                       .time = {.elapsed = sums[kElapsed],
                                .data = sums[kData],
                                .forward = sums[kForward],
                                .backward = sums[kBackward],
                                .idle = sums[kIdle],
                                .waited = sums[kWaited],
                                .update = sums[kUpdate]},
                       .own_work = list(kOwnWork),
                       .last_actions = list(kLastActions),
                       .bubbles = list(kBubbles),
                       .peaks = list(kPeaks)};
  agreed.peak_bytes = static_cast<std::int64_t>(*std::ranges::max_element(agreed.peaks));
  agreed.bubble = *std::ranges::max_element(agreed.bubbles);
  if (sums[kPreempted] > 0) agreed.stop = ExitCode::preempted;
  if (sums[kInterrupted] > 0) agreed.stop = ExitCode::interrupted;  // a person: not to be started again
  return agreed;
}

}  // namespace trireme
