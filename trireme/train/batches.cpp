#include "trireme/train/batches.hpp"

#include <ATen/ops/from_blob.h>

#include "trireme/nn/cross_entropy.hpp"

namespace trireme {
namespace {

at::Tensor as_tensor(const std::vector<std::int64_t>& numbers, at::Device device) {
  return at::from_blob(const_cast<std::int64_t*>(numbers.data()), {static_cast<std::int64_t>(numbers.size())},
                       at::kLong)
      .to(device, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

Batches::Batches(const Config& config, const Mesh& mesh, at::Device device)
    : config_(config),
      device_(device),
      dp_(mesh.group(Axis::dp).size()),
      dp_rank_(mesh.group(Axis::dp).rank()),
      data_(config),
      split_(config.training.global_batch_size, config.training.micro_batch_size, dp_, dp_rank_) {
  prefetch_ = std::make_unique<data::Prefetch>(
      [this](std::int64_t step, std::int64_t microbatch, data::TokenBatch& out) {
        data_.maker().make(data_.sampler().samples(step, split_.rows(microbatch)), data_.sampler().seq_len(step), out);
      },
      num_microbatches());
}

Batches::~Batches() = default;

Microbatch Batches::tensors_of(const data::TokenBatch& batch, std::int64_t step, bool training) const {
  Microbatch out;
  out.ids_T = as_tensor(batch.tokens, device_);
  std::vector<std::int64_t> targets = batch.labels;
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (!batch.loss_mask[i]) targets[i] = CrossEntropyOptions{}.ignore_index;
  out.targets_T = as_tensor(targets, device_);
  out.valid = batch.num_valid_labels;
  out.context = {.seed = static_cast<std::uint64_t>(config_.run.seed),
                 .step = step,
                 .training = training,
                 .batch = batch.num_samples,
                 .length = batch.local_length,
                 .whole_length = batch.seq_len,
                 .samples_T = as_tensor(batch.rows, device_).repeat_interleave(batch.local_length),
                 .positions_T = as_tensor(batch.positions, device_)};
  return out;
}

std::vector<Microbatch> Batches::take(std::int64_t step) {
  std::vector<Microbatch> out;
  for (std::int64_t m = 0; m < num_microbatches(); ++m) {
    data::TokenBatch batch = prefetch_->take(step, m);
    out.push_back(tensors_of(batch, step, true));
    prefetch_->recycle(std::move(batch));
  }
  return out;
}

std::int64_t Batches::num_validation_batches() const {
  return data_.validation() ? data_.validation()->num_batches(config_.training.micro_batch_size, dp_) : 0;
}

Microbatch Batches::validation_batch(std::int64_t b) const {
  data::TokenBatch batch;
  const data::ValidationSet& set = *data_.validation();
  data_.maker().make(set.samples(b, config_.training.micro_batch_size, dp_, dp_rank_), set.seq_len(), batch);
  return tensors_of(batch, 0, false);
}

}  // namespace trireme
