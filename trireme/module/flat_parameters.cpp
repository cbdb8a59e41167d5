#include "trireme/module/flat_parameters.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/layout/flat_layout.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/tensor/full_tensor.hpp"
#include "trireme/parallel/zero/freed_storage.hpp"

namespace trireme {
namespace {

// A tensor whose memory is freed still has an address, and reading it would crash. So parameters that are not gathered
// have a storage of their own, which says why it cannot be read. (A storage cannot be made readable again: libtorch has
// that since 2.13 only.)

/// `bytes`: its size, for views of it: `linear` makes one before it reads the weight.
void set_unreadable(const at::Tensor& x, std::size_t bytes, const std::string& why) {
  c10::StorageImpl& storage = *x.storage().unsafeGetStorageImpl();
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(why);
  storage.set_nbytes(bytes);
}

/// Not is_alias_of(), which may read them.
bool are_in_one_storage(const at::Tensor& x, const at::Tensor& y) {
  return x.storage().unsafeGetStorageImpl() == y.storage().unsafeGetStorageImpl();
}

}  // namespace

bool has_values(const at::Tensor& x) {
  try {
    static_cast<void>(x.storage().data());
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

namespace {

PartialSums partial_sums(const std::vector<Param>& parameters, const ParamMesh* mesh) {
  std::vector<const ParamSpec*> specs;
  for (const Param& parameter : parameters) specs.push_back(&parameter.spec);
  return mesh != nullptr ? PartialSums(specs, *mesh) : PartialSums();
}

}  // namespace

FlatParameters::FlatParameters(std::vector<Param> parameters, const FlatRanks& ranks, const FlatOptions& options)
    : parameters_(std::move(parameters)),
      ranks_(ranks),
      options_(options),
      trained_(parameters_[0].value.requires_grad()),
      unreadable_text_(
          text("fully_shard: the parameters of unit '", options.unit, "' (", names(),
               ") have no values outside of a call of the unit\n  fix: call the sharded model, and its ",
               "units as what they are (Unit<M>, also of a list: list[i]->as<Unit<M>>()->forward(x)); ",
               "for values: with_whole_parameters(), state() or release(); make the optimizer from shards(), or from ",
               "parameters() of a Pipeline")),
      partial_(partial_sums(parameters_, ranks.mesh)),
      reduce_(ranks.mean_over == ranks.all->size() ? reduction_of(options.gradients) : Reduce::sum),
      divisor_(options.gradients == GradientScale::mean && reduce_ == Reduce::sum ? ranks.mean_over : 1) {
  const at::NoGradGuard no_grad;
  for (const Param& parameter : parameters_) {
    const std::int64_t offset = (end_ + kFlatAlign - 1) / kFlatAlign * kFlatAlign;
    offsets_.push_back(offset);
    end_ = offset + parameter.value.numel();
    numel_ += parameter.value.numel();
  }
  const std::int64_t shards = ranks.shards ? ranks.shards->size() : 1;
  padded_ = (end_ + shards - 1) / shards * shards;
  const at::TensorOptions own = parameters_[0].value.options().requires_grad(false).device(options.device);
  at::Tensor all = at::zeros({padded_}, own);
  for (std::size_t i = 0; ranks.all->rank() == 0 && i < parameters_.size(); ++i) {
    if (parameters_[i].value.is_meta())
      fill(parameters_[i], part(all, i));
    else
      part(all, i).copy_(parameters_[i].value);
  }
  if (ranks.all->size() > 1) ranks.all->broadcast_(as_real(all), 0).wait();
  share_full_values(all);
  const bool converts =
      options.param && own.dtype().toScalarType() != *options.param && parameters_[0].value.is_floating_point();
  whole_ = converts ? at::zeros({padded_}, own.dtype(*options.param)) : all;
  shard_ = all;
  if (ranks.shards) {
    const std::int64_t each = padded_ / shards;
    shard_ = all.narrow(0, ranks.shards->rank() * each, each).clone();
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor value = parameters_[i].value;
    if (value.is_meta())
      set_memory(value, part(whole_, i));
    else
      value.set_data(part(whole_, i));    // also forgets a gradient accumulator, which would check dtype and device
    value.mutable_grad() = at::Tensor();  // of the time before: the optimizer sees the shards only
  }
  shard_.set_requires_grad(trained_);
  hidden_ = at::empty({0}, whole_.options());
  absent_ = at::empty({0}, whole_.options());
  set_unreadable(absent_, whole_bytes(), unreadable_text_);
  set_unreadable(
      hidden_, 0,
      text(
          "fully_shard: the gradients of unit '", options_.unit, "' (", names(),
          ") are in the shards, reduced\n  fix: make the optimizer from shards(), or from parameters() of a Pipeline, ",
          "and clip with clip_grad_norm() of the sharded model or the Pipeline"));
  free();
}

FlatParameters::~FlatParameters() {
  // A unit that was prefetched, but not called.
  for (std::optional<Pending>* pending : {&gathering_, &reducing_}) try {
      if (*pending && std::uncaught_exceptions() == 0) std::move(**pending).wait();
    } catch (const Error&) {  // a peer is lost: whoever needs it finds out
    }
  if (state_ == State::given_back) return;
  forget_gradients();
  if (state_ != State::whole && !is_shared_memory())
    set_unreadable(absent_, whole_bytes(),
                   text("fully_shard: ", names(), " have no values: their sharded model is gone\n",
                        "  fix: call its release() first, which gives the module back with all its values"));
}

/// Of a parameter that is cut: the ranks that have the parts of it get them from one that fills all of it, so that the
/// values are the same on every layout.
void FlatParameters::fill(const Param& parameter, const at::Tensor& own) const {
  if (has_full_value(parameter)) return options_.fill(parameter.name, own);
  Group& holders = ranks_.mesh->model_group(parameter.spec);
  const at::Tensor full = at::zeros(parameter.spec.shape, own.options());
  if (holders.rank() == 0) options_.fill(parameter.name, full);
  holders.broadcast_(as_real(full), 0).wait();
  copy_own_part(full, parameter.spec, *ranks_.mesh, own);
}

/// Within a tensor-parallel group, where a module that is no layer of ours may have drawn other values on each rank.
void FlatParameters::share_full_values(const at::Tensor& all) const {
  if (ranks_.mesh == nullptr) return;
  std::vector<at::Tensor> full;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (has_full_value(parameters_[i]) && parameters_[i].spec.placement.view == View::dense)
      full.push_back(as_real(part(all, i)));
  broadcast_all(full, ranks_.mesh->mesh().group(Axis::tp));
}

std::string FlatParameters::names() const {
  constexpr std::size_t kShown = 3;
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, parameters_.size()); ++i)
    out += (i == 0 ? "" : ", ") + parameters_[i].name;
  return parameters_.size() > kShown ? text(out, " and ", parameters_.size() - kShown, " more") : out;
}

at::Tensor FlatParameters::part(const at::Tensor& all, std::size_t i) const {
  const at::Tensor& value = parameters_[i].value;
  return all.narrow(0, offsets_[i], value.numel()).view(value.sizes());
}

at::Tensor FlatParameters::full(const at::Tensor& all, std::size_t i) const {
  const at::Tensor own = part(all, i);
  return has_full_value(parameters_[i]) ? own : gather_full_tensor(own, parameters_[i].spec, *ranks_.mesh).value;
}

KeptTensor FlatParameters::kept() const {
  const std::int64_t begin = ranks_.shards ? ranks_.shards->rank() * shard_.numel() : 0, end = begin + shard_.numel();
  KeptTensor out{shard_, {}, ranks_.replicas};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& value = parameters_[i].value;
    const std::int64_t first = std::clamp(offsets_[i], begin, end),
                       last = std::clamp(offsets_[i] + value.numel(), begin, end);
    if (first == last) continue;
    out.parts.push_back(
        {.param = &parameters_[i], .range = {first - offsets_[i], last - offsets_[i]}, .offset = first - begin});
  }
  return out;
}

void FlatParameters::start_gather() {
  if (state_ != State::absent) return;
  const at::NoGradGuard no_grad;
  allocate_storage(whole_);
  if (!ranks_.shards) {
    whole_.copy_(shard_.detach());
    give_memory();
    return;
  }
  gathering_.emplace(
      ranks_.shards->all_gather_into(as_real(whole_), as_real(shard_.detach().to(whole_.scalar_type()))));
  state_ = State::coming;
}

void FlatParameters::finish_gather() {
  start_gather();
  wait_for_gather();
  check_memory(whole_);
}

/// `memory`: what the parameters must be in.
void FlatParameters::check_memory(const at::Tensor& memory) const {
  for (const Param& parameter : parameters_)
    require<ConfigError>(are_in_one_storage(parameter.value, memory), "fully_shard: ", parameter.name,
                         " has got other memory since the module was sharded, by torch::load(), set_data() or to(): ",
                         "it would not be trained\n  fix: load and change parameters within with_whole_parameters()");
}

void FlatParameters::give_memory() {
  state_ = State::whole;
  check_memory(absent_);
  move_parameters(absent_, whole_);
}

/// Those that are in `from`. Not as set_() would: autograd has saved them, and compares versions.
void FlatParameters::move_parameters(const at::Tensor& from, const at::Tensor& to) {
  for (const Param& parameter : parameters_)
    if (are_in_one_storage(parameter.value, from))
      parameter.value.unsafeGetTensorImpl()->set_storage_keep_dtype(to.storage());
}

void FlatParameters::wait_for_gather() {
  if (state_ != State::coming) return;
  std::move(*gathering_).wait();
  gathering_.reset();
  give_memory();
}

void FlatParameters::free() {
  if (is_shared_memory() || state_ == State::absent || state_ == State::given_back) return;
  wait_for_gather();
  move_parameters(whole_, absent_);
  free_storage(whole_);
  state_ = State::absent;
}

void FlatParameters::start_reduction() {
  if (!trained_) return;
  const at::NoGradGuard no_grad;
  finish_reduction();  // of an earlier call of the same unit
  const at::ScalarType dtype =
      whole_.is_complex() ? whole_.scalar_type() : options_.reduce.value_or(whole_.scalar_type());
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
  if (divisor_ != 1) all.div_(divisor_);
  partial_.sum([&](std::size_t i) { return part(all, i); });
  reducing_.emplace(ranks_.shards ? ranks_.shards->reduce_scatter(as_real(all), reduce_)
                                  : ranks_.replicas->all_reduce_(as_real(all), reduce_));
}

void FlatParameters::finish_reduction() {
  if (!reducing_) return;
  const at::NoGradGuard no_grad;
  at::Tensor parts = std::move(*reducing_).wait();
  if (ranks_.shards && ranks_.replicas) parts = ranks_.replicas->all_reduce_(parts, reduce_).wait();
  const at::Tensor sum = shard_.is_complex() ? at::view_as_complex(parts) : parts.to(shard_.scalar_type());
  reducing_.reset();
  if (shard_.grad().defined())
    shard_.mutable_grad().add_(sum.view_as(shard_));
  else
    shard_.mutable_grad() = tensor_in(sum, 0, shard_.sizes());
}

void FlatParameters::hide_gradients() {
  if (!trained_) return;
  for (const Param& parameter : parameters_) {
    at::Tensor gradient = at::empty({0}, hidden_.options());
    set_memory(gradient, hidden_);
    gradient.unsafeGetTensorImpl()->set_sizes_contiguous(parameter.value.sizes());
    at::Tensor(parameter.value).mutable_grad() = gradient;
  }
}

void FlatParameters::forget_gradients() {
  for (const Param& parameter : parameters_) at::Tensor(parameter.value).mutable_grad() = at::Tensor();
}

void FlatParameters::give_back() {
  const at::NoGradGuard no_grad;
  free();
  const at::Tensor all = gathered_shards();
  for (std::size_t i = 0; i < parameters_.size(); ++i) at::Tensor(parameters_[i].value).set_data(part(all, i).clone());
  forget_gradients();
  state_ = State::given_back;
}

at::Tensor FlatParameters::gathered_shards() const {
  const at::NoGradGuard no_grad;
  if (!ranks_.shards) return shard_.detach().clone();
  at::Tensor all = at::empty({padded_}, shard_.options().requires_grad(false));
  ranks_.shards->all_gather_into(as_real(all), as_real(shard_.detach())).wait();
  return all;
}

void FlatParameters::set_shard(const at::Tensor& all) {
  const at::NoGradGuard no_grad;
  shard_.copy_(ranks_.shards ? all.view({ranks_.shards->size(), -1})[ranks_.shards->rank()] : all);
}

}  // namespace trireme
