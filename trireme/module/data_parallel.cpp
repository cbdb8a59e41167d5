#include "trireme/module/data_parallel.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/error.hpp"
#include "trireme/module/flat_parameters.hpp"
#include "trireme/module/sync_batch_norm.hpp"

namespace trireme {
namespace {

constexpr double kBytesOfMb = 1e6;

/// Those that need a gradient, in the order of registration.
std::vector<NamedTensor> trained_parameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> out = distinct_parameters(module);
  std::erase_if(out, [](const NamedTensor& parameter) { return !parameter.value.requires_grad(); });
  return out;
}

/// The sum of sparse tensors that may have different numbers of elements; undefined: none.
at::Tensor sum_of_sparse(const at::Tensor& own, const at::Tensor& parameter, Group& group) {
  const at::TensorOptions longs = at::TensorOptions(at::kLong).device(parameter.device());
  const at::Tensor mine = own.defined() ? own.coalesce() : at::Tensor();
  const std::int64_t count = mine.defined() ? mine._nnz() : -1;  // -1: not used here
  const at::Tensor counts = group.all_gather(at::tensor({count}).to(longs)).wait().cpu();
  const std::int64_t most = counts.max().item<std::int64_t>();
  if (most < 0) return {};
  at::Tensor rows = at::zeros({most}, longs), values = at::zeros({most, parameter.size(1)}, parameter.options());
  values = values.detach();
  if (count > 0) {
    rows.narrow(0, 0, count).copy_(mine._indices()[0]);
    values.narrow(0, 0, count).copy_(mine._values());
  }
  const at::Tensor all_rows = group.all_gather(rows).wait(), all_values = group.all_gather(values).wait();
  std::vector<at::Tensor> kept_rows, kept_values;
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::int64_t length = std::max<std::int64_t>(0, counts[rank].item<std::int64_t>());
    kept_rows.push_back(all_rows.narrow(0, rank * most, length));
    kept_values.push_back(all_values.narrow(0, rank * most, length));
  }
  return at::sparse_coo_tensor(at::cat(kept_rows).unsqueeze(0), at::cat(kept_values), parameter.sizes()).coalesce();
}

}  // namespace

/// Note [Unused parameters]
/// A bucket ends with one element per parameter: 1 if this rank has a gradient for it. After the reduction it is
/// positive if any rank has one. Only a rank that lacks one looks at it, which on a GPU waits for the device.
///
/// Note [Gradients that travel twice]
/// A gradient that was reduced may get more before it is zeroed: by another backward, or in the same one by another
/// recompute() of its module. It is then reduced again, as a whole. Means stay what they are; of a sum each rank first
/// keeps its part, 1 / ranks.
class DataParallel::Reducer {
 public:
  Reducer(torch::nn::Module& module, Group& group, const DataParallelOptions& options)
      : group_(group), options_(options), parameters_(trained_parameters(module)), known_(module, "data_parallel") {
    require<ConfigError>(!parameters_.empty(), "data_parallel: the module has no parameter that needs a gradient");
    for (const NamedTensor& parameter : parameters_) {
      require<ConfigError>(has_values(parameter.value), "data_parallel: ", parameter.name,
                           " has no values: it belongs to a sharded model\n  fix: release() that one first");
      require<ConfigError>(dynamic_cast<Hook*>(hook_of(parameter).get()) == nullptr, "data_parallel: ", parameter.name,
                           " belongs to another DataParallel: its gradients would be reduced twice\n",
                           "  fix: keep one DataParallel for all of the module, for as long as it is trained");
    }
    require_reachable(module, group, "data_parallel");
    require_same_module(module, group, parameters_[0].value.device(), "data_parallel");
    for (const auto& buffer : module.named_buffers()) buffers_.push_back(buffer.value());
    std::vector<at::Tensor> all = buffers_;
    for (const auto& parameter : module.named_parameters()) all.push_back(parameter.value());
    broadcast_all(all, group);
    set_batch_norm_group(module, &group);
    for (const auto& child : module.modules(/*include_self=*/false))
      if (auto norm = std::dynamic_pointer_cast<SyncBatchNormImpl>(child)) batch_norms_.push_back(std::move(norm));
    make_buckets(sparse_parameters(module));
    seen_.assign(parameters_.size(), false);
    summed_.assign(parameters_.size(), false);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      auto hook = std::make_unique<Hook>(*this, i, std::move(hook_of(parameters_[i])));
      torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].value, std::move(hook));
      before_.push_back(parameters_[i].value.register_hook([this, i](const at::Tensor&) { about_to_arrive(i); }));
    }
  }
  ~Reducer() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].value.remove_hook(before_[i]);
      // A hook that somebody has set since has ended ours.
      if (auto* own = dynamic_cast<Hook*>(hook_of(parameters_[i]).get()))
        torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].value, own->take_other());
    }
    for (const auto& norm : batch_norms_) norm->set_group(nullptr);
    if (std::uncaught_exceptions() > 0) return;
    try {
      forget_sent();
    } catch (const Error&) {  // a peer is lost: whoever needs it finds out
    }
  }
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  bool syncs = true;
  int sent_during_backward() const { return sent_early_; }

 private:
  using AnyHook = std::unique_ptr<torch::autograd::PostAccumulateGradHook>;
  static AnyHook& hook_of(const NamedTensor& parameter) {
    return torch::autograd::impl::post_acc_grad_hooks(parameter.value);
  }

  /// A parameter has one hook: the user's goes first.
  class Hook final : public torch::autograd::PostAccumulateGradHook {
   public:
    Hook(Reducer& reducer, std::size_t parameter, AnyHook other)
        : reducer_(reducer), parameter_(parameter), other_(std::move(other)) {}
    void operator()(const torch::autograd::Variable& value) override {
      if (other_) (*other_)(value);
      reducer_.arrived(parameter_);
    }
    AnyHook take_other() { return std::move(other_); }
    void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {}
    void apply_with_saved(torch::autograd::Variable&, torch::dynamo::autograd::SwapSavedVariables&) override {}

   private:
    Reducer& reducer_;
    const std::size_t parameter_;
    AnyHook other_;
  };

  struct BackwardGuard {
    explicit BackwardGuard(Reducer& it) : reducer(it) {}
    ~BackwardGuard() { reducer.in_backward_ = false; }
    BackwardGuard(const BackwardGuard&) = delete;
    BackwardGuard& operator=(const BackwardGuard&) = delete;
    Reducer& reducer;
  };
  struct Slot {
    std::size_t parameter;
    at::Tensor gradient;  // in the memory of the bucket
  };
  struct Bucket {
    at::Tensor memory;  // gradients, then one element per slot: Note [Unused parameters]
    std::vector<Slot> slots;
    std::size_t missing = 0;  // gradients still to arrive in this backward
    std::optional<Pending> pending = {};

    at::Tensor used() const {
      const auto count = static_cast<std::int64_t>(slots.size());
      return memory.narrow(0, memory.numel() - count, count);
    }
  };

  void make_buckets(const std::set<const c10::TensorImpl*>& sparse) {
    std::vector<std::size_t> open;
    std::size_t bytes = 0;
    const auto close = [&] {
      if (!open.empty()) add_bucket(open);
      open.clear();
      bytes = 0;
    };
    bucket_of_.resize(parameters_.size());
    for (std::size_t i = parameters_.size(); i-- > 0;) {
      const at::Tensor& value = parameters_[i].value;
      if (sparse.contains(value.unsafeGetTensorImpl())) {
        sparse_.push_back(i);
        continue;
      }
      if (!open.empty() && (parameters_[open[0]].value.scalar_type() != value.scalar_type() ||
                            parameters_[open[0]].value.device() != value.device()))
        close();
      open.push_back(i);
      bytes += value.nbytes();
      if (static_cast<double>(bytes) >= options_.bucket_mb * kBytesOfMb) close();
    }
    close();
  }

  void add_bucket(const std::vector<std::size_t>& parameters) {
    Bucket bucket;
    std::int64_t elements = 0;
    for (const std::size_t i : parameters) elements += parameters_[i].value.numel();
    const at::TensorOptions options = parameters_[parameters[0]].value.options().requires_grad(false);
    bucket.memory = at::zeros({elements + static_cast<std::int64_t>(parameters.size())}, options);
    std::int64_t begin = 0;
    for (const std::size_t i : parameters) {
      const at::Tensor& value = parameters_[i].value;
      bucket.slots.push_back({i, tensor_in(bucket.memory, begin, value.sizes())});
      begin += value.numel();
      bucket_of_[i] = {buckets_.size(), bucket.slots.size() - 1};
    }
    buckets_.push_back(std::move(bucket));
  }

  /// The next gradient of a parameter is known, and not yet added to what it has.
  void about_to_arrive(std::size_t i) {
    // torch::autograd::grad() only returns it.
    const auto* info = torch::autograd::get_current_graph_task_exec_info();
    if (info && !info->empty()) {
      const auto node = info->find(torch::autograd::impl::try_get_grad_accumulator(parameters_[i].value).get());
      if (node == info->end() || !node->second.needed_) return;
    }
    if (Bucket* bucket = is_sparse(i) ? nullptr : &buckets_[bucket_of_[i].first]; bucket && bucket->pending) {
      if (!in_backward_) {
        forget_sent();  // of a backward that threw
      } else {
        take_gradients(*bucket);
        again_.insert(bucket_of_[i].first);
      }
    }
    require<ConfigError>(dynamic_cast<Hook*>(hook_of(parameters_[i]).get()) != nullptr,
                         "data_parallel: ", parameters_[i].name,
                         " has got another hook since, instead of the one that reduces its ",
                         "gradient\n  fix: set hooks of your own first: data_parallel() keeps them");
    keep_own_part(i);
  }

  /// Note [Gradients that travel twice]
  void keep_own_part(std::size_t i) {
    if (!summed_[i]) return;
    summed_[i] = false;
    const at::NoGradGuard no_grad;
    if (at::Tensor gradient = parameters_[i].value.grad(); gradient.defined()) gradient.div_(group_.size());
  }

  void arrived(std::size_t i) {
    if (!syncs) return;
    if (!in_backward_) begin();
    const bool is_first = !seen_[i];
    seen_[i] = true;
    if (is_sparse(i)) return;
    const auto [b, s] = bucket_of_[i];
    fill(b, s);
    if (is_first) --buckets_[b].missing;
    for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) {
      send(next_);
      ++sent_early_;
    }
  }

  void begin() {
    known_.check();
    forget_sent();
    again_.clear();
    seen_.assign(seen_.size(), false);
    for (Bucket& bucket : buckets_) bucket.missing = bucket.slots.size();
    next_ = 0;
    sent_early_ = 0;
    // Autograd drops the callback if backward throws: its guard then makes the next backward begin anew.
    const auto guard = std::make_shared<BackwardGuard>(*this);
    torch::autograd::Engine::get_default_engine().queue_callback([guard] { guard->reducer.finish(); });
    in_backward_ = true;
  }

  /// Buckets of a backward that threw, and that somebody caught.
  void forget_sent() {
    for (Bucket& bucket : buckets_)
      if (bucket.pending) std::move(*std::exchange(bucket.pending, std::nullopt)).wait();
  }

  /// Puts the gradient of a parameter into its bucket, or zeros if there is none.
  void fill(std::size_t b, std::size_t s) {
    const at::NoGradGuard no_grad;
    Bucket& bucket = buckets_[b];
    const Slot& slot = bucket.slots[s];
    keep_own_part(slot.parameter);
    const at::Tensor gradient = parameters_[slot.parameter].value.grad();
    at::Tensor used = bucket.used()[static_cast<std::int64_t>(s)];
    used.fill_(gradient.defined() ? 1 : 0);
    at::Tensor place = slot.gradient;
    if (!gradient.defined())
      place.zero_();
    else if (gradient.data_ptr() != place.data_ptr())
      place.copy_(gradient);
  }

  void send(std::size_t b) {
    buckets_[b].pending.emplace(group_.all_reduce_(as_real(buckets_[b].memory), reduction_of(options_.gradients)));
  }

  /// At the end of backward.
  void finish() {
    const at::NoGradGuard no_grad;
    in_backward_ = false;
    for (; next_ < buckets_.size(); ++next_) {
      for (std::size_t s = 0; s < buckets_[next_].slots.size(); ++s)
        if (!seen_[buckets_[next_].slots[s].parameter]) fill(next_, s);
      send(next_);
    }
    for (const std::size_t b : again_) {
      for (std::size_t s = 0; s < buckets_[b].slots.size(); ++s) fill(b, s);
      send(b);
    }
    for (Bucket& bucket : buckets_) take_gradients(bucket);
    for (const std::size_t i : sparse_) reduce_sparse(i);
    sync_buffers(buffers_, options_.buffers, group_);
  }

  void take_gradients(Bucket& bucket) {
    std::move(*std::exchange(bucket.pending, std::nullopt)).wait();
    at::Tensor used;  // read only if it is needed
    for (std::size_t s = 0; s < bucket.slots.size(); ++s) {
      at::Tensor parameter = parameters_[bucket.slots[s].parameter].value;
      if (!parameter.grad().defined()) {
        if (!used.defined()) used = bucket.used().abs().to(at::kCPU, at::kDouble);
        if (used[static_cast<std::int64_t>(s)].item<double>() == 0) continue;
      }
      parameter.mutable_grad() = bucket.slots[s].gradient;
      summed_[bucket.slots[s].parameter] = options_.gradients == GradientScale::sum;
    }
  }

  bool is_sparse(std::size_t i) const { return std::ranges::find(sparse_, i) != sparse_.end(); }

  void reduce_sparse(std::size_t i) {
    keep_own_part(i);
    at::Tensor parameter = parameters_[i].value;
    const at::Tensor sum = sum_of_sparse(parameter.grad(), parameter, group_);
    if (!sum.defined()) return;
    summed_[i] = options_.gradients == GradientScale::sum;
    parameter.mutable_grad() = summed_[i] ? sum : sum / group_.size();
  }

  Group& group_;
  const DataParallelOptions options_;
  const std::vector<NamedTensor> parameters_;
  const KnownParameters known_;
  std::vector<at::Tensor> buffers_;
  std::vector<std::shared_ptr<SyncBatchNormImpl>> batch_norms_;
  std::vector<Bucket> buckets_;                                 // in the order in which backward completes them
  std::vector<std::pair<std::size_t, std::size_t>> bucket_of_;  // by parameter: its bucket, its slot
  std::vector<std::size_t> sparse_;                             // parameters
  std::vector<bool> seen_;                                      // by parameter: its gradient has arrived
  std::vector<bool> summed_;                                    // by parameter: its gradient is a sum over the ranks
  std::vector<unsigned> before_;                                // by parameter: its hook about_to_arrive()
  std::set<std::size_t> again_;                                 // buckets that got more after they were sent
  std::size_t next_ = 0;                                        // buckets are reduced in this order on every rank
  bool in_backward_ = false;
  int sent_early_ = 0;
};

DataParallel::DataParallel(torch::nn::Module& module, Group& group, const DataParallelOptions& options)
    : reducer_(std::make_unique<Reducer>(module, group, options)) {}
DataParallel::~DataParallel() = default;
DataParallel::DataParallel(DataParallel&&) noexcept = default;

DataParallel::NoSync::NoSync(const DataParallel& parallel) : syncs_(parallel.reducer_->syncs), before_(syncs_) {
  syncs_ = false;
}

int DataParallel::sent_during_backward() const { return reducer_->sent_during_backward(); }

}  // namespace trireme
