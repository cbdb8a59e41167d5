#include "trireme/parallel/zero/sharded_params.hpp"

#include <algorithm>

#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/base/memory_kind.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/zero/freed_storage.hpp"

namespace trireme {
ShardedParams::ShardedParams(const Partition& partition)
    : partition_(partition), states_(partition.num_buckets(), State::whole) {
  const at::NoGradGuard no_grad;
  const MemoryScope weights(MemoryKind::weights);
  pending_.resize(partition.num_buckets());
  for (std::size_t b = 0; b < partition.num_buckets(); ++b) {
    const FlatBucket& bucket = partition.bucket(b);
    const at::Tensor whole = at::zeros({bucket.numel}, partition.tensor_options());
    for (const FlatSlot& slot : bucket.slots) {
      const at::Tensor value = partition.params()[slot.item].value;
      const at::Tensor view = whole.narrow(0, slot.offset, slot.numel).view(value.sizes());
      if (!value.is_meta()) view.copy_(value);
      // Writes to `whole` do not bump the parameter's version counter, which autograd would reject in backward.
      set_memory(value, view);
    }
    wholes_.push_back(whole);
    const Range own = partition.own(b);
    const at::Tensor part = whole.narrow(0, own.begin, own.size());
    shards_.push_back(partition.comes_and_goes(b) ? part.clone() : part);
    if (!partition.comes_and_goes(b)) continue;
    live_ += bucket.numel;
    free(b);
  }
  most_live_ = 0;
  const UnitPlan& units = partition.units();
  for (std::size_t i = units.visits.size(); i-- > 0;)
    if (units.visits[i].weights_in_backward) backward_.push_back(units.visits[i].unit);
}

ShardedParams::~ShardedParams() = default;

void ShardedParams::start(std::size_t b) {
  if (states_[b] != State::absent) return;
  const at::Tensor& whole = wholes_[b];
  const MemoryScope weights(MemoryKind::weights);
  allocate_storage(whole);
  live_ += whole.numel();
  most_live_ = std::max(most_live_, live_);
  states_[b] = State::coming;
  pending_[b].emplace(partition_.shards().all_gather_into(whole, shards_[b]));
}

void ShardedParams::arrive(std::size_t b) {
  if (!pending_[b]) return;
  std::move(*pending_[b]).wait();
  pending_[b].reset();
  states_[b] = State::whole;
}

void ShardedParams::free(std::size_t b) {
  if (states_[b] == State::absent) return;
  arrive(b);
  const at::Tensor& whole = wholes_[b];
  free_storage(whole);
  live_ -= whole.numel();
  states_[b] = State::absent;
}

void ShardedParams::gather_kept(std::size_t b) {
  if (partition_.comes_and_goes(b) || partition_.shards().size() == 1) return;
  require(!pending_[b], "bucket ", b, " is gathered twice");
  pending_[b].emplace(partition_.shards().all_gather_into(wholes_[b], shards_[b]));
  if (!partition_.options().overlap) arrive(b);
}

void ShardedParams::finish_gathers() {
  for (std::size_t b = 0; b < partition_.num_buckets(); ++b)
    if (!partition_.comes_and_goes(b)) arrive(b);
}

void ShardedParams::start_unit(std::size_t unit) {
  for (const std::size_t b : partition_.buckets_of_unit(unit))
    if (partition_.comes_and_goes(b)) start(b);
}

void ShardedParams::arrive_unit(std::size_t unit) {
  for (const std::size_t b : partition_.buckets_of_unit(unit)) arrive(b);
}

std::int64_t ShardedParams::numel_of_unit(std::size_t unit) const {
  std::int64_t n = 0;
  for (const std::size_t b : partition_.buckets_of_unit(unit))
    if (partition_.comes_and_goes(b)) n += partition_.bucket(b).numel;
  return n;
}

/// Prefetch: starts the gather of `unit` during the computation of the current one, within max_live_parameters.
void ShardedParams::start_ahead(std::size_t unit) {
  const ZeroOptions& options = partition_.options();
  if (!options.overlap) return;
  std::int64_t missing = 0;
  for (const std::size_t b : partition_.buckets_of_unit(unit))
    if (states_[b] == State::absent) missing += partition_.bucket(b).numel;
  if (live_ + missing <= options.max_live_parameters) start_unit(unit);
}

void ShardedParams::before_forward(std::size_t unit) {
  const std::vector<UnitVisit>& visits = partition_.units().visits;
  if (forward_place_ == visits.size()) forward_place_ = 0;
  require(visits[forward_place_].unit == unit, "forward enters unit ", unit, " (", partition_.units().units[unit].name,
          ") where the plan has unit ", visits[forward_place_].unit);
  start_unit(unit);
  if (forward_place_ + 1 < visits.size()) start_ahead(visits[forward_place_ + 1].unit);
  arrive_unit(unit);
}

bool ShardedParams::is_kept_after_forward(std::size_t place) const {
  const std::vector<UnitVisit>& visits = partition_.units().visits;
  const std::size_t unit = visits[place].unit;
  if (place + 1 < visits.size() && visits[place + 1].unit == unit) return true;
  const ZeroOptions& options = partition_.options();
  // Elements used from here to the next visit, including this unit: in the rest of forward, and in backward.
  std::int64_t distance = numel_of_unit(unit);
  for (std::size_t next = place + 1; next < visits.size(); ++next) {
    if (visits[next].unit == unit)
      return distance <= options.max_reuse_distance && live_ <= options.max_live_parameters;
    if (visits[next].unit != visits[next - 1].unit) distance += numel_of_unit(visits[next].unit);
  }
  if (!at::GradMode::is_enabled() || !visits[place].weights_in_backward) return false;
  if (!options.reshard_after_forward) return true;
  for (std::size_t next = place + 1; next < visits.size(); ++next)
    if (visits[next].weights_in_backward && visits[next].unit != visits[next - 1].unit)
      distance += numel_of_unit(visits[next].unit);
  return distance <= options.max_reuse_distance && live_ <= options.max_live_parameters;
}

void ShardedParams::after_forward(std::size_t unit) {
  const bool kept = is_kept_after_forward(forward_place_++);
  if (kept) return;
  for (const std::size_t b : partition_.buckets_of_unit(unit))
    if (partition_.comes_and_goes(b)) free(b);
}

void ShardedParams::before_backward(std::size_t unit) {
  require(backward_place_ < backward_.size() && backward_[backward_place_] == unit, "backward enters unit ", unit, " (",
          partition_.units().units[unit].name, ") where the plan has another");
  // Of frozen parameters no gradient arrives: what comes before a unit in backward is done with them.
  if (partition_.options().forward_only && backward_place_ > 0 && backward_[backward_place_ - 1] != unit)
    for (const std::size_t b : partition_.buckets_of_unit(backward_[backward_place_ - 1]))
      if (partition_.comes_and_goes(b) && !keeps_) free(b);
  start_unit(unit);
  if (++backward_place_ < backward_.size()) start_ahead(backward_[backward_place_]);
  arrive_unit(unit);
}

void ShardedParams::gather(std::size_t b) {
  start(b);
  arrive(b);
}

void ShardedParams::backward_done(std::size_t b) {
  if (partition_.comes_and_goes(b) && !keeps_) free(b);
}

void ShardedParams::free_all() {
  if (keeps_) return;
  for (std::size_t b = 0; b < partition_.num_buckets(); ++b)
    if (partition_.comes_and_goes(b)) free(b);
}

void ShardedParams::with_whole(std::size_t b, const std::function<void()>& f) {
  const bool comes = partition_.comes_and_goes(b), was_there = states_[b] != State::absent;
  gather(b);
  f();
  if (comes && !was_there) free(b);
}

}  // namespace trireme
