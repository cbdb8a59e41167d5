#include "trireme/parallel/zero/grad_reducer.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/error.hpp"
#include "trireme/base/memory_kind.hpp"

namespace trireme {

/// Runs when the gradient of a parameter has been accumulated.
class GradReducer::Hook : public kernels::GradientPlace {
 public:
  Hook(GradReducer& reducer, std::size_t item) : reducer_(reducer), item_(item) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    at::Tensor gradient = parameter.grad();
    at::Tensor(parameter).mutable_grad() = at::Tensor();  // so that autograd does not add the next one to it
    if (reducer_.deferring_)
      reducer_.deferring_->push_back({item_, {}, std::move(gradient)});
    else
      reducer_.arrived(item_, std::move(gradient));
  }
  Memory to_write() override { return reducer_.to_write(item_); }
  bool defer(const Write& write, bool reads_parameter) override {
    if (!reducer_.deferring_) return false;
    reducer_.deferring_->push_back({item_, write, {}, reads_parameter});
    return true;
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
  bool last = true;  // of the last microbatch
  std::int64_t microbatch = 0;
};

namespace {

// Limit on buckets in flight that are not reduced in place: one being communicated, one queued.
constexpr std::size_t kInFlight = 2;

at::ScalarType collected_in(const Partition& partition) {
  const ZeroOptions& options = partition.options();
  return options.stage >= 2 && partition.dtype() != at::kDouble ? options.reduce : options.accumulate;
}

}  // namespace

GradReducer::GradReducer(const Partition& partition)
    : partition_(partition), every_microbatch_(partition.options().stage >= 2), dtype_(collected_in(partition)) {
  const std::size_t items = partition.params().size(), buckets = partition.num_buckets();
  std::int64_t numel = 0;
  for (std::size_t b = 0; b < buckets; ++b) {
    sums_begin_.push_back(numel);
    numel += every_microbatch_ ? partition.own(b).size() : partition.bucket(b).numel;
    std::vector<const ParamSpec*> specs;
    for (const FlatSlot& slot : partition.bucket(b).slots) specs.push_back(&partition.params()[slot.item].spec);
    partial_.emplace_back(specs, partition.mesh());
  }
  const MemoryScope gradients(MemoryKind::gradients);
  sums_ = at::zeros({partition.options().forward_only ? 0 : numel},
                    partition.tensor_options().dtype(partition.options().accumulate));
  filled_.assign(items, false);
  seen_.assign(items, false);
  written_.assign(items, false);
  aside_.resize(items);
  held_.resize(items);
  summed_.assign(buckets, false);
  missing_.assign(buckets, 0);
  for (std::size_t i = 0; i < items; ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(partition.params()[i].value, std::make_unique<Hook>(*this, i));
}

GradReducer::~GradReducer() {
  for (const Param& param : partition_.params()) torch::autograd::impl::set_post_acc_grad_hooks(param.value, nullptr);
}

at::Tensor GradReducer::shard(std::size_t b) const {
  const Range own = partition_.own(b);
  return sums_.narrow(0, sums_begin_[b] + (every_microbatch_ ? 0 : own.begin), own.size());
}

/// Where the gradients of bucket b are written.
at::Tensor GradReducer::buffer(std::size_t b) {
  const FlatBucket& bucket = partition_.bucket(b);
  if (!every_microbatch_) return sums_.narrow(0, sums_begin_[b], bucket.numel);
  if (const auto found = open_.find(b); found != open_.end()) return found->second;
  // The reductions of the microbatch before have had its whole forward to finish: two microbatches' buckets at a time
  // would be more memory than stage 1 needs.
  land(static_cast<std::size_t>(
      std::ranges::count_if(in_flight_, [this](const InFlight& one) { return one.microbatch == microbatch_; })));
  const MemoryScope gradients(MemoryKind::gradients);
  const at::Tensor memory = at::empty({bucket.numel}, partition_.tensor_options().dtype(dtype_));
  // Padding is reduced with the bucket, so it must be initialized.
  std::int64_t end = 0;
  for (const FlatSlot& slot : bucket.slots) {
    if (slot.offset > end) memory.narrow(0, end, slot.offset - end).zero_();
    end = slot.offset + slot.numel;
  }
  if (bucket.numel > end) memory.narrow(0, end, bucket.numel - end).zero_();
  open_.emplace(b, memory);
  return memory;
}

at::Tensor GradReducer::view(std::size_t item) {
  const at::Tensor& value = partition_.params()[item].value;
  return buffer(partition_.bucket_of(item)).narrow(0, partition_.offset_of(item), value.numel()).view(value.sizes());
}

void GradReducer::begin_microbatch(bool last) {
  require(!in_microbatch_ && in_flight_.size() <= kInFlight, "a microbatch begins before the last one has ended");
  if (!in_step_) {
    filled_.assign(filled_.size(), false);
    summed_.assign(summed_.size(), false);
  }
  in_step_ = in_microbatch_ = true;
  last_ = last;
  ++microbatch_;
  next_bucket_ = 0;
  sent_early_ = 0;
  seen_.assign(seen_.size(), false);
  written_.assign(written_.size(), false);
  aside_.assign(aside_.size(), at::Tensor());
  for (std::size_t b = 0; b < partition_.num_buckets(); ++b)
    missing_[b] = static_cast<std::int64_t>(partition_.bucket(b).slots.size());
}

void GradReducer::begin_deferral(int microbatch) {
  require(!in_microbatch_ && !deferring_ && !deferred_.contains(microbatch), "the weight gradients of microbatch ",
          microbatch, " are deferred while others are computed, or twice");
  deferring_ = &deferred_[microbatch];
}

void GradReducer::run_deferred(int microbatch) {
  auto work = deferred_.extract(microbatch);
  require(in_microbatch_ && !work.empty(), "the weight gradients of microbatch ", microbatch, " were not deferred");
  const at::NoGradGuard no_grad;
  for (Deferred& one : work.mapped()) {
    if (one.write) {
      if (one.reads_parameter && bucket_read_) bucket_read_(partition_.bucket_of(one.item));
      const kernels::GradientPlace::Memory memory = to_write(one.item);
      one.write(memory.value, memory.is_empty);
      one.write = nullptr;  // releases the activations
    } else {
      arrived(one.item, std::move(one.gradient));
    }
  }
}

// On CUDA hooks run on autograd's thread for the device. A reducer has one device, so only one thread runs this at a
// time.
kernels::GradientPlace::Memory GradReducer::to_write(std::size_t item) {
  require_open(item);
  const bool is_empty = !written_[item];
  written_[item] = true;
  // If the bucket already holds earlier microbatches, the gradient is computed separately and then added: then the
  // order of summation is the same whether one rank accumulates or several ranks have one microbatch each.
  const bool aside = look_at_ || filled_[item] || !partition_.options().contiguous_gradients;
  if (is_empty && aside) {
    const MemoryScope gradients(MemoryKind::gradients);
    const at::Tensor& value = partition_.params()[item].value;
    aside_[item] = at::empty(
        value.sizes(),
        partition_.tensor_options().dtype(partition_.options().contiguous_gradients ? dtype_ : partition_.dtype()));
  }
  return {aside_[item].defined() ? aside_[item] : view(item), is_empty};
}

void GradReducer::require_open(std::size_t item) const {
  const std::string& name = partition_.params()[item].name;
  require(in_microbatch_, name, ": a gradient outside of a microbatch\n  fix: begin_microbatch() before backward");
  require(!(seen_[item] && sends_now()), name, " got two gradients in one microbatch: its bucket may be on its way");
}

/// Adds the gradient from autograd to the one a layer wrote directly; undefined if all of it is already in the bucket.
at::Tensor GradReducer::whole_gradient(std::size_t item, at::Tensor gradient) {
  if (!written_[item]) return gradient.is_sparse() ? gradient.to_dense() : gradient;
  written_[item] = false;
  if (!gradient.is_sparse() || gradient._nnz() > 0) (aside_[item].defined() ? aside_[item] : view(item)).add_(gradient);
  return std::exchange(aside_[item], at::Tensor());
}

void GradReducer::arrived(std::size_t item, at::Tensor from_autograd) {
  require_open(item);
  const at::NoGradGuard no_grad;
  const std::size_t b = partition_.bucket_of(item);
  at::Tensor gradient = whole_gradient(item, std::move(from_autograd));
  if (look_at_) look_at_(partition_.params()[item], gradient);
  const bool first = !seen_[item];
  seen_[item] = true;
  if (!gradient.defined()) {
    filled_[item] = true;
  } else if (partition_.options().contiguous_gradients) {
    add(item, gradient);
  } else {
    held_[item] = held_[item].defined() ? held_[item] + gradient : std::move(gradient);
  }
  if (!first || --missing_[b] > 0) return;
  if (bucket_complete_) bucket_complete_(b);
  if (!sends_now() || holds_back_ || !partition_.options().contiguous_gradients) return;
  for (; next_bucket_ < partition_.num_buckets() && missing_[next_bucket_] == 0; ++next_bucket_) {
    send(next_bucket_);
    ++sent_early_;
  }
}

void GradReducer::add(std::size_t item, const at::Tensor& gradient) {
  // The first gradient overwrites the old content, so the buffer need not be zeroed.
  at::Tensor place = view(item);
  if (filled_[item])
    place.add_(gradient);
  else
    place.copy_(gradient);
  filled_[item] = true;
}

void GradReducer::replayed() {
  require(in_microbatch_ && recorded_.size() == filled_.size(), "a backward was replayed that was not recorded");
  seen_ = recorded_;
  for (std::size_t i = 0; i < filled_.size(); ++i) filled_[i] = filled_[i] || recorded_[i];
}

void GradReducer::end_microbatch() {
  require(in_microbatch_, "end_microbatch() without begin_microbatch()");
  if (holds_back_) recorded_ = seen_;
  in_microbatch_ = false;
  const at::NoGradGuard no_grad;
  for (std::size_t b = next_bucket_; b < partition_.num_buckets(); ++b) {
    for (const FlatSlot& slot : partition_.bucket(b).slots)
      if (held_[slot.item].defined()) add(slot.item, std::exchange(held_[slot.item], at::Tensor()));
    if (sends_now()) send(b);
  }
}

void GradReducer::send(std::size_t b) {
  const at::NoGradGuard no_grad;
  const ZeroOptions& options = partition_.options();
  const std::vector<FlatSlot>& slots = partition_.bucket(b).slots;
  for (const FlatSlot& slot : slots) {
    if (!filled_[slot.item]) view(slot.item).zero_();
    if (every_microbatch_) filled_[slot.item] = false;  // the bucket of the next microbatch starts empty
  }
  partial_[b].sum([&](std::size_t i) { return view(slots[i].item); });

  const at::Tensor all = buffer(b);
  open_.erase(b);  // `all` keeps it alive
  const bool cast = all.scalar_type() != options.reduce && all.scalar_type() != at::kDouble;
  const at::Tensor wire = cast ? all.to(options.reduce) : all;
  // One shard: a single all-reduce. Otherwise reduce to the local shard, and that over the replicas when it has landed.
  Group& group = partition_.shards().size() == 1 ? partition_.replicas() : partition_.shards();
  const bool scatter = options.reduce_scatter && partition_.shards().size() > 1;
  if (every_microbatch_ || scatter || cast) land(kInFlight - 1);  // these hold memory of their own until they land
  in_flight_.push_back({b, scatter ? group.reduce_scatter(wire) : group.all_reduce_(wire), last_, microbatch_});
  if (!options.overlap) land(0);
}

/// Waits for the oldest reductions until at most `in_flight_at_most` remain.
void GradReducer::land(std::size_t in_flight_at_most) {
  while (in_flight_.size() > in_flight_at_most) {
    InFlight first = std::move(in_flight_.front());
    in_flight_.pop_front();
    const at::Tensor result = std::move(first.pending).wait();
    const std::size_t b = first.bucket;
    const Range own = partition_.own(b);
    const at::Tensor part = result.numel() == own.size() ? result : result.narrow(0, own.begin, own.size());
    at::Tensor sum = shard(b);
    if (summed_[b])
      sum.add_(part);
    else if (sum.data_ptr() != part.data_ptr())
      sum.copy_(part);
    summed_[b] = every_microbatch_;
    if (first.last && partition_.shards().size() > 1 && partition_.replicas().size() > 1) sum_over_replicas(b);
  }
}

/// HSDP: starts the second half of the reduction of bucket b.
void GradReducer::sum_over_replicas(std::size_t b) {
  const at::Tensor sum = shard(b);
  const bool cast = sum.scalar_type() != partition_.options().reduce && sum.scalar_type() != at::kDouble;
  const at::Tensor wire = cast ? sum.to(partition_.options().reduce) : sum;
  over_replicas_.push_back({b, partition_.replicas().all_reduce_(wire)});
  if (!partition_.options().overlap) land_over_replicas();
}

void GradReducer::land_over_replicas() {
  for (; !over_replicas_.empty(); over_replicas_.pop_front()) {
    const at::Tensor result = std::move(over_replicas_.front().pending).wait();
    const at::Tensor sum = shard(over_replicas_.front().bucket);
    if (sum.data_ptr() != result.data_ptr()) sum.copy_(result);
  }
}

void GradReducer::finish() {
  require(in_step_ && !in_microbatch_ && last_, "finish() without a last microbatch");
  const at::NoGradGuard no_grad;
  in_step_ = false;
  land(0);
  land_over_replicas();
}

}  // namespace trireme
