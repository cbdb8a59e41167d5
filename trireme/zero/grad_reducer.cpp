#include "trireme/zero/grad_reducer.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/error.hpp"
#include "trireme/nn/gradients.hpp"

namespace trireme {

/// Runs when a parameter's gradient is there.
class GradReducer::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradReducer& reducer, std::size_t item) : reducer_(reducer), item_(item) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    at::Tensor gradient = parameter.grad();
    at::Tensor(parameter).mutable_grad() = at::Tensor();  // so that autograd hands the next one over without adding
    reducer_.arrived(item_, std::move(gradient));
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {}
  void apply_with_saved(torch::autograd::Variable&, torch::dynamo::autograd::SwapSavedVariables&) override {}

 private:
  GradReducer& reducer_;
  std::size_t item_;
};

struct GradReducer::InFlight {
  std::size_t bucket;
  Pending pending;
  at::Tensor target;  // where the result has to be copied to; undefined: it is there
};

namespace {

/// Backward order: what was registered last first; what waits for the sum over tp at the end.
std::vector<Param> in_flat_order(std::vector<Param> params, const Mesh& mesh, std::size_t& first_partial) {
  std::erase_if(params, [](const Param& param) { return !param.value.requires_grad(); });
  std::ranges::reverse(params);
  const auto partial = std::ranges::stable_partition(
      params, [&](const Param& param) { return !has_partial_gradient(param.spec, mesh); });
  first_partial = static_cast<std::size_t>(partial.begin() - params.begin());
  return params;
}

}  // namespace

GradReducer::GradReducer(std::vector<Param> params, Mesh& mesh, const GradReducerOptions& options)
    : mesh_(mesh), group_(mesh.group({Axis::dp, Axis::cp})), options_(options) {
  std::size_t first_partial = 0;
  params_ = in_flat_order(std::move(params), mesh, first_partial);
  require<ConfigError>(!params_.empty(), "the model has no parameter to train");
  std::vector<FlatItem> items;
  for (const Param& param : params_) {
    const at::Tensor& value = param.value;
    require<ConfigError>((options.accumulate == at::kDouble) == (value.scalar_type() == at::kDouble), param.name,
                         " is ", value.scalar_type(), ", its gradient is to be accumulated in ", options.accumulate);
    items.push_back({value.numel(), param.spec.fill == Fill::embedding});
  }
  const auto bucket_elements = std::max<std::int64_t>(
      1,
      static_cast<std::int64_t>(options.bucket_mb * 1e6 / static_cast<double>(c10::elementSize(options.accumulate))));
  // Two layouts, one behind the other: buckets never mix what is sent early with what is not.
  layout_ = flat_layout(std::span(items).first(first_partial), bucket_elements, group_.size());
  first_partial_bucket_ = layout_.buckets.size();
  FlatLayout rest = flat_layout(std::span(items).subspan(first_partial), bucket_elements, group_.size());
  for (FlatBucket& bucket : rest.buckets) {
    bucket.begin += layout_.numel;
    for (FlatSlot& slot : bucket.slots) slot.item += first_partial;
    layout_.buckets.push_back(std::move(bucket));
  }
  layout_.numel += rest.numel;

  buffer_ = at::zeros({layout_.numel}, params_[0].value.options().dtype(options.accumulate).requires_grad(false));
  views_.resize(params_.size());
  bucket_of_.resize(params_.size());
  for (std::size_t b = 0; b < layout_.buckets.size(); ++b)
    for (const FlatSlot& slot : layout_.buckets[b].slots) {
      bucket_of_[slot.item] = b;
      views_[slot.item] = bucket(b).narrow(0, slot.offset, slot.numel).view(params_[slot.item].value.sizes());
      torch::autograd::impl::set_post_acc_grad_hooks(params_[slot.item].value,
                                                     std::make_unique<Hook>(*this, slot.item));
    }
  filled_.assign(params_.size(), false);
  seen_.assign(params_.size(), false);
  missing_.assign(layout_.buckets.size(), 0);
}

GradReducer::~GradReducer() {
  for (const Param& param : params_) torch::autograd::impl::set_post_acc_grad_hooks(param.value, nullptr);
}

at::Tensor GradReducer::bucket(std::size_t b) const {
  return buffer_.narrow(0, layout_.buckets[b].begin, layout_.buckets[b].numel);
}

at::Tensor GradReducer::shard(std::size_t b) const {
  const Range own = layout_.shard(b, group_.rank());
  return bucket(b).narrow(0, own.begin, own.size());
}

void GradReducer::begin_microbatch(bool last) {
  require(in_flight_.empty(), "a microbatch begins before the sums of the last step are there");
  if (!in_backward_) {
    filled_.assign(params_.size(), false);
    next_bucket_ = 0;
    sent_early_ = 0;
  }
  in_backward_ = true;
  last_ = last;
  seen_.assign(params_.size(), false);
  for (std::size_t b = 0; b < layout_.buckets.size(); ++b)
    missing_[b] = static_cast<std::int64_t>(layout_.buckets[b].slots.size());
}

// On CUDA hooks run on autograd's thread of the device, one for each device: a reducer has one device, so one thread at
// a time is here.
void GradReducer::arrived(std::size_t item, at::Tensor gradient) {
  require(in_backward_, params_[item].name,
          ": a gradient outside of a microbatch\n  fix: begin_microbatch() before backward");
  require(!(last_ && seen_[item]), params_[item].name,
          " got two gradients in one microbatch: its bucket may be on its way");
  // The first of a step overwrites what the last step left: nobody has to fill the buffer with zeros.
  if (filled_[item])
    views_[item].add_(gradient);
  else
    views_[item].copy_(gradient);
  filled_[item] = true;
  seen_[item] = true;
  if (!last_ || --missing_[bucket_of_[item]] > 0 || !options_.overlap) return;
  send_complete_buckets();
}

void GradReducer::send_complete_buckets() {
  for (; next_bucket_ < first_partial_bucket_ && missing_[next_bucket_] == 0; ++next_bucket_) {
    send(next_bucket_);
    ++sent_early_;
  }
}

void GradReducer::send(std::size_t b) {
  const at::Tensor all = bucket(b);
  const bool cast = options_.reduce != options_.accumulate && options_.accumulate != at::kDouble;
  const at::Tensor wire = cast ? all.to(options_.reduce) : all;
  if (options_.scatter && group_.size() > 1) {
    // Into a tensor of its own: part of the input may not be the output.
    in_flight_.push_back({b, group_.reduce_scatter(wire), shard(b)});
  } else {
    in_flight_.push_back({b, group_.all_reduce_(wire), cast ? all : at::Tensor()});
  }
}

void GradReducer::finish() {
  require(in_backward_ && last_, "finish() without a last microbatch");
  in_backward_ = false;
  for (std::size_t i = 0; i < params_.size(); ++i)
    if (!filled_[i]) views_[i].zero_();
  for (; next_bucket_ < first_partial_bucket_; ++next_bucket_) send(next_bucket_);
  std::vector<OwnGradient> partial;
  for (std::size_t b = first_partial_bucket_; b < layout_.buckets.size(); ++b)
    for (const FlatSlot& slot : layout_.buckets[b].slots)
      partial.push_back({&params_[slot.item].spec, views_[slot.item]});
  if (!partial.empty()) sum_partial_gradients(partial, mesh_);
  for (; next_bucket_ < layout_.buckets.size(); ++next_bucket_) send(next_bucket_);
  while (!in_flight_.empty()) {
    InFlight first = std::move(in_flight_.front());
    in_flight_.pop_front();
    const at::Tensor sum = std::move(first.pending).wait();
    if (first.target.defined()) first.target.copy_(sum);
  }
}

}  // namespace trireme
