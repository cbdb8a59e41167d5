#include "trireme/module/flat_parameters.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "trireme/layout/flat_layout.hpp"
#include "trireme/nn/freed_storage.hpp"
#include "trireme/nn/init_scope.hpp"

namespace trireme {

FlatParameters::FlatParameters(std::vector<NamedTensor> parameters, Group& group, const FlatOptions& options)
    : parameters_(std::move(parameters)),
      group_(group),
      options_(options),
      trained_(parameters_[0].value.requires_grad()) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& parameter : parameters_) {
    const std::int64_t offset = (end_ + kFlatAlign - 1) / kFlatAlign * kFlatAlign;
    offsets_.push_back(offset);
    end_ = offset + parameter.value.numel();
    numel_ += parameter.value.numel();
  }
  const std::int64_t shards = options.shards ? group.size() : 1;
  padded_ = (end_ + shards - 1) / shards * shards;
  const at::TensorOptions own = parameters_[0].value.options().requires_grad(false);
  at::Tensor all = at::zeros({padded_}, own);
  for (std::size_t i = 0; i < parameters_.size(); ++i) part(all, i).copy_(parameters_[i].value);
  const bool converts =
      options.param && own.dtype().toScalarType() != *options.param && parameters_[0].value.is_floating_point();
  whole_ = converts ? at::zeros({padded_}, own.dtype(*options.param)) : all;
  shard_ = all;
  if (options.shards) {
    const std::int64_t each = padded_ / shards;
    shard_ = all.narrow(0, group.rank() * each, each).clone();
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor value = parameters_[i].value;
    if (converts)
      value.set_data(part(whole_, i));  // also forgets a gradient accumulator, which would check the dtype
    else
      set_memory(value, part(whole_, i));
    value.mutable_grad() = at::Tensor();  // of the time before: the optimizer sees the shards only
  }
  shard_.set_requires_grad(trained_);
  free();
}

/// The module's tensors refer to memory that nobody would fill any more: empty tensors say so instead of crashing.
FlatParameters::~FlatParameters() {
  // A unit that was prefetched, but not called.
  for (std::optional<Pending>* pending : {&gathering_, &reducing_})
    if (*pending && std::uncaught_exceptions() == 0) std::move(**pending).wait();
  if (state_ == State::whole || is_shared_memory()) return;
  for (const NamedTensor& parameter : parameters_)
    set_memory(parameter.value, at::empty({0}, parameter.value.options().requires_grad(false)));
}

at::Tensor FlatParameters::part(const at::Tensor& all, std::size_t i) const {
  const at::Tensor& value = parameters_[i].value;
  return all.narrow(0, offsets_[i], value.numel()).view(value.sizes());
}

KeptTensor FlatParameters::kept() const {
  const std::int64_t begin = options_.shards ? group_.rank() * shard_.numel() : 0, end = begin + shard_.numel();
  KeptTensor out{shard_, {}};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& value = parameters_[i].value;
    const std::int64_t first = std::clamp(offsets_[i], begin, end),
                       last = std::clamp(offsets_[i] + value.numel(), begin, end);
    if (first == last) continue;
    out.parts.push_back({.name = parameters_[i].name,
                         .sizes = value.sizes().vec(),
                         .range = {first - offsets_[i], last - offsets_[i]},
                         .offset = first - begin});
  }
  return out;
}

void FlatParameters::start_gather() {
  if (state_ != State::absent) return;
  const at::NoGradGuard no_grad;
  allocate_storage(whole_);
  if (!options_.shards) {
    whole_.copy_(shard_.detach());
    state_ = State::whole;
    return;
  }
  gathering_.emplace(group_.all_gather_into(whole_, shard_.detach().to(whole_.scalar_type())));
  state_ = State::coming;
}

void FlatParameters::finish_gather() {
  start_gather();
  wait_for_gather();
}

void FlatParameters::wait_for_gather() {
  if (state_ != State::coming) return;
  std::move(*gathering_).wait();
  gathering_.reset();
  state_ = State::whole;
}

void FlatParameters::free() {
  if (is_shared_memory() || state_ == State::absent) return;
  wait_for_gather();
  free_storage(whole_);
  state_ = State::absent;
}

void FlatParameters::start_reduction() {
  if (!trained_) return;
  const at::NoGradGuard no_grad;
  finish_reduction();  // of an earlier call of the same unit
  const at::ScalarType dtype = options_.reduce.value_or(whole_.scalar_type());
  const at::Tensor all = at::empty({padded_}, whole_.options().dtype(dtype));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor value = parameters_[i].value;
    if (value.grad().defined())
      part(all, i).copy_(value.grad());
    else
      part(all, i).zero_();
    value.mutable_grad() = at::Tensor();
    const std::int64_t end = offsets_[i] + value.numel(), next = i + 1 < offsets_.size() ? offsets_[i + 1] : padded_;
    if (end < next) all.narrow(0, end, next - end).zero_();
  }
  const Reduce how = reduction_of(options_.gradients);
  reducing_.emplace(options_.shards ? group_.reduce_scatter(all, how) : group_.all_reduce_(all, how));
}

void FlatParameters::finish_reduction() {
  if (!reducing_) return;
  const at::NoGradGuard no_grad;
  const at::Tensor sum = std::move(*reducing_).wait().to(shard_.scalar_type());
  reducing_.reset();
  if (shard_.grad().defined())
    shard_.mutable_grad().add_(sum.view_as(shard_));
  else
    shard_.mutable_grad() = tensor_in(sum, 0, shard_.sizes());
}

at::Tensor FlatParameters::gathered_shards() const {
  const at::NoGradGuard no_grad;
  return options_.shards ? group_.all_gather(shard_.detach()).wait().view({-1}) : shard_.detach().clone();
}

void FlatParameters::set_shard(const at::Tensor& all) {
  const at::NoGradGuard no_grad;
  shard_.copy_(options_.shards ? all.view({group_.size(), -1})[group_.rank()] : all);
}

}  // namespace trireme
