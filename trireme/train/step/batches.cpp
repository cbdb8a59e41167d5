#include "trireme/train/step/batches.hpp"

#include <algorithm>
#include <initializer_list>
#include <memory>

#include <ATen/ops/empty.h>

#include "trireme/parallel/context/ring_plan.hpp"
#include "trireme/parallel/tensor/cross_entropy.hpp"

namespace trireme {
namespace {

/// The lists as views of one tensor: a single copy to the device, which does not wait for it.
std::vector<at::Tensor> as_tensors(std::initializer_list<const std::vector<std::int64_t>*> lists, at::Device device) {
  std::int64_t total = 0;
  for (const auto* list : lists) total += static_cast<std::int64_t>(list->size());
  const at::Tensor host = at::empty({total}, at::TensorOptions(at::kLong).pinned_memory(device.is_cuda()));
  auto* out = host.mutable_data_ptr<std::int64_t>();
  for (const auto* list : lists) out = std::copy(list->begin(), list->end(), out);
  const at::Tensor all = host.to(device, /*non_blocking=*/true);
  std::vector<at::Tensor> views;
  std::int64_t begin = 0;
  for (const auto* list : lists) {
    views.push_back(all.narrow(0, begin, static_cast<std::int64_t>(list->size())));
    begin += static_cast<std::int64_t>(list->size());
  }
  return views;
}

/// Where documents begin, for kernels that take variable lengths.
void add_bounds(ForwardContext& context, const std::vector<std::int64_t>& documents, std::int64_t seq_len) {
  const auto tokens = static_cast<std::int64_t>(documents.size());
  std::vector<int> bounds;
  for (std::int64_t i = 0; i < tokens; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (i % seq_len != 0 && documents[at] == documents[at - 1]) continue;
    if (!bounds.empty()) context.longest_document = std::max(context.longest_document, i - bounds.back());
    bounds.push_back(static_cast<int>(i));
  }
  context.longest_document = std::max(context.longest_document, tokens - bounds.back());
  bounds.push_back(static_cast<int>(tokens));
  const at::Tensor host =
      at::empty({static_cast<std::int64_t>(bounds.size())}, at::TensorOptions(at::kInt).pinned_memory(true));
  std::ranges::copy(bounds, host.mutable_data_ptr<int>());
  context.document_bounds = host.to(context.documents_bS.device(), /*non_blocking=*/true);
}

/// Of each sample: where its documents begin.
std::vector<std::vector<std::int64_t>> document_begins(const std::vector<std::int64_t>& documents, std::int64_t samples,
                                                       std::int64_t seq_len) {
  std::vector<std::vector<std::int64_t>> begins(static_cast<std::size_t>(samples), {0});
  for (std::size_t i = 1; i < documents.size(); ++i) {
    const std::int64_t place = static_cast<std::int64_t>(i) % seq_len;
    if (place != 0 && documents[i] != documents[i - 1]) begins[i / static_cast<std::size_t>(seq_len)].push_back(place);
  }
  return begins;
}

}  // namespace

Batches::Batches(const Config& config, const Mesh& mesh, at::Device device)
    : config_(config),
      device_(device),
      dp_(mesh.group(Axis::dp).size()),
      dp_rank_(mesh.group(Axis::dp).rank()),
      data_(config, mesh.coord(Axis::cp)),
      split_(config.training.global_batch_size, config.training.micro_batch_size, dp_, dp_rank_) {
  prefetch_from(1);
}

void Batches::prefetch_from(std::int64_t step) {
  prefetch_ = std::make_unique<data::Prefetch>(
      [this](std::int64_t s, std::int64_t microbatch, data::TokenBatch& out) {
        data_.maker(s).make(data_.sampler().samples(s, split_.rows(microbatch)), data_.sampler().seq_len(s), out);
      },
      num_microbatches(), step);
}

void Batches::continue_from(const data::DataPosition& position) {
  prefetch_.reset();  // its thread reads the data
  data_.continue_from(position);
  prefetch_from(position.step + 1);
}

Batches::~Batches() = default;

Microbatch Batches::tensors_of(const data::TokenBatch& batch, std::int64_t step, bool training) const {
  Microbatch out;
  std::vector<std::int64_t> targets = batch.labels;
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (!batch.loss_mask[i]) targets[i] = CrossEntropyOptions{}.ignore_index;
  const bool restarts = !batch.places.empty();
  const std::vector<std::int64_t> documents(batch.documents.begin(), batch.documents.end());
  const std::vector<at::Tensor> on_device =
      as_tensors({&batch.tokens, &targets, restarts ? &batch.places : &batch.positions, &batch.rows,
                  restarts ? &batch.positions : &batch.places, &documents},
                 device_);
  out.ids_T = on_device[0];
  out.targets_T = on_device[1];
  out.valid = batch.num_valid_labels;
  out.context = {.seed = static_cast<std::uint64_t>(config_.run.seed),
                 .step = step,
                 .training = training,
                 .batch = batch.num_samples,
                 .length = batch.local_length,
                 .whole_length = batch.seq_len,
                 .samples_b = batch.rows,
                 .samples_T = on_device[3].unsqueeze(1).expand({-1, batch.local_length}).reshape(-1),
                 .positions_T = on_device[2]};
  if (restarts) out.context.document_positions_T = on_device[4];
  // Without a border in the batch the causal kernel does the same, and faster.
  if (std::ranges::any_of(documents, [](std::int64_t document) { return document > 0; }))
    out.context.documents_bS = on_device[5].view({batch.num_samples, batch.seq_len});
  if (out.context.documents_bS.defined() && device_.is_cuda()) add_bounds(out.context, documents, batch.seq_len);
  if (device_.is_cuda() && batch.local_length < batch.seq_len)
    out.context.ring_plans = std::make_shared<RingPlans>(document_begins(documents, batch.num_samples, batch.seq_len));
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

std::vector<Microbatch> Batches::empty(std::int64_t step) const {
  data::TokenBatch batch;
  const std::vector<data::Sample> no_samples(static_cast<std::size_t>(config_.training.micro_batch_size));
  data_.maker(step).make(no_samples, data_.sampler().seq_len(step), batch);
  return std::vector<Microbatch>(static_cast<std::size_t>(num_microbatches()), tensors_of(batch, step, true));
}

std::int64_t Batches::num_validation_batches() const {
  return data_.validation() ? data_.validation()->num_batches(config_.training.micro_batch_size, dp_) : 0;
}

Microbatch Batches::validation_batch(std::int64_t b) const {
  data::TokenBatch batch;
  const data::ValidationSet& set = *data_.validation();
  data_.validation_maker().make(set.samples(b, config_.training.micro_batch_size, dp_, dp_rank_), set.seq_len(), batch);
  return tensors_of(batch, 0, false);
}

}  // namespace trireme
