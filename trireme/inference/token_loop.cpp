#include "trireme/inference/token_loop.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/kernels/matmul/grouped_linear.hpp"
#include "trireme/nn/forward_context.hpp"

namespace trireme {
namespace {

/// Tokens of the cache that every query is compared with, most of them masked: the work of a token is the same until
/// the sequences have grown by so many.
constexpr std::int64_t kCapacityStep = 256;

at::Tensor in_pinned_memory(const at::Tensor& x) {
  return at::empty(x.sizes(), x.options().device(at::kCPU).pinned_memory(true)).copy_(x);
}

}  // namespace

bool TokenLoop::takes(InferenceModel& model) {
  const ModelConfig& m = model.config();
  if (model.mesh().world().size() > 1) return false;
  if (config::parse_rope_kind(m.rope_scaling.rope_type) == config::RopeKind::dynamic) return false;
  if (m.num_local_experts == 0) return true;
  const std::int64_t hidden = m.moe_intermediate_size > 0 ? m.moe_intermediate_size : m.intermediate_size;
  return model.dtype() == at::kBFloat16 &&
         kernels::has_products_of_rows_on_device(model.device(), m.hidden_size, hidden);
}

TokenLoop::TokenLoop(InferenceModel& model, TokenChooser& chooser, std::shared_ptr<KvCache> cache, const Begin& begin,
                     bool records)
    : model_(model),
      chooser_(chooser),
      cache_(std::move(cache)),
      records_(records),
      longest_(std::ranges::max(begin.lengths)),
      draws_(begin.draws) {
  const auto on_device = [&](const std::vector<std::int64_t>& numbers) {
    return at::tensor(numbers, at::kLong).to(model.device());
  };
  std::vector<std::int64_t> positions = begin.lengths;
  for (std::int64_t& length : positions) --length;
  ids_b_ = on_device({begin.tokens.begin(), begin.tokens.end()});
  positions_b_ = on_device(positions);
}

void TokenLoop::work() {
  ForwardContext context = whole_samples(ids_b_.size(0), 1, 0, model_.device());
  context.training = false;
  context.whole_length = capacity_;
  context.positions_T = positions_b_;
  context.cache = cache_;
  const at::Tensor tokens_b = chooser_.choose(model_.hidden(ids_b_, context), noise_bv_);
  ids_b_.copy_(tokens_b);
  // Sequences that have ended stay in the batch: theirs must remain positions of the model.
  positions_b_.add_(1).clamp_max_(model_.config().max_position_embeddings - 1);
}

/// The next token as it is, which makes room in the cache and loads what it needs, and then its recording.
void TokenLoop::grow() {
  capacity_ = (longest_ + kCapacityStep - 1) / kCapacityStep * kCapacityStep;
  if (graph_) graph_->release();
  graph_.reset();
  work();
  if (!records_) return;
  graph_ = std::make_unique<kernels::CudaGraph>();
  graph_->capture([this] { work(); });
}

void TokenLoop::start() {
  OnItsWay now;
  if (const at::Tensor noise = chooser_.noise(draws_); noise.defined()) {
    now.host_noise = records_ ? in_pinned_memory(noise) : noise;
    if (!noise_bv_.defined()) noise_bv_ = at::empty(noise.sizes(), noise.options().device(model_.device()));
    noise_bv_.copy_(now.host_noise, /*non_blocking=*/true);
  }
  if (longest_ > capacity_)
    grow();
  else if (graph_)
    graph_->replay();
  else
    work();
  now.host_b = at::empty(ids_b_.sizes(), ids_b_.options().device(at::kCPU).pinned_memory(records_));
  now.host_b.copy_(ids_b_, /*non_blocking=*/true);
  if (model_.device().is_cuda()) {
    const c10::impl::VirtualGuardImpl guard(model_.device().type());
    now.copied.emplace(model_.device().type());
    now.copied->record(guard.getStream(model_.device()));
  }
  on_their_way_.push_back(std::move(now));
  // A sequence that goes on is never longer: it ends there.
  longest_ = std::min(longest_ + 1, model_.config().max_position_embeddings);
  ++draws_;
}

std::vector<data::TokenId> TokenLoop::take() {
  require(!on_their_way_.empty(), "take() of a token that was not started");
  OnItsWay oldest = std::move(on_their_way_.front());
  on_their_way_.pop_front();
  if (oldest.copied) oldest.copied->synchronize();
  const auto* const first = oldest.host_b.const_data_ptr<std::int64_t>();
  return {first, first + oldest.host_b.numel()};
}

}  // namespace trireme
