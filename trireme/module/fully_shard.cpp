#include "trireme/module/fully_shard.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>

#include "trireme/base/error.hpp"
#include "trireme/module/flat_parameters.hpp"
#include "trireme/module/hooked_units.hpp"
#include "trireme/module/sync_batch_norm.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/zero/shard_groups.hpp"

namespace trireme {

/// Note [Order of communication]
/// The gathers of a unit use one group, and so do its reductions, so their order must be the same on every rank. It
/// follows from the calls of units alone: a unit is gathered when it is called, reduced when the gradients of its
/// inputs are known (or at the end of backward if no input needs one), and prefetched by the order of calls in this or
/// the last forward. Which parameters a rank used in a call does not matter: those without a gradient send zeros.
class ShardedModule::Core : public std::enable_shared_from_this<ShardedModule::Core> {
 public:
  /// `mesh`: null without one; then `group` is all there is.
  Core(std::shared_ptr<torch::nn::Module> module, Group& group, Mesh* mesh, const FullyShardOptions& options)
      : module_(std::move(module)), group_(group), options_(options), known_(*module_, "fully_shard") {
    if (mesh != nullptr) mesh_.emplace(*mesh);
    check_replicate();
    const std::vector<NamedTensor> parameters = distinct_parameters(*module_);
    require<ConfigError>(std::ranges::any_of(parameters, [](const NamedTensor& p) { return p.value.requires_grad(); }),
                         "fully_shard: the module has no parameter that needs a gradient");
    for (const auto& buffer : module_->named_buffers()) buffers_.push_back({buffer.key(), buffer.value()});
    check_values(parameters);
    check_values(buffers_);
    require_dense_gradients(*module_, "fully_shard", "sparse(false) for the embedding, or data_parallel()");
    const at::Device found = parameters[0].value.device();
    device_ = options.device.value_or(computing_device(found, group));
    const std::optional<at::Device> only = group.only_device();
    require<ConfigError>(!only || group.size() == 1 || device_.type() == only->type(),
                         "fully_shard: FullyShardOptions::device is ", device_.str(), ", and ", group.str(),
                         " communicates over NCCL, which takes tensors of ", only.value_or(device_).str(),
                         " alone\n  fix: leave it out; or ContextOptions::backend = \"gloo\"");
    require_same_module(*module_, group, device_, "fully_shard");
    share_buffers();
    set_batch_norm_group(*module_, &group);
  }

  /// Not in the constructor: hooks refer to this object.
  void shard() {
    hooked_.emplace(module_, options_.policy, [this](std::size_t unit) { return hooks(unit); });
    const std::map<const c10::TensorImpl*, Param> params = params_by_tensor();
    FlatOptions flat{.param = options_.precision.param,
                     .reduce = options_.precision.reduce,
                     .gradients = options_.gradients,
                     .device = device_,
                     .fill = options_.fill};
    for (const HookedUnits::Part& part : hooked_->parts()) {
      flat.unit = part.name;
      UnitState& unit = units_.emplace_back();
      unit.name = part.name;
      std::map<std::tuple<at::ScalarType, bool, int, View>, std::vector<Param>> kinds;
      for (const NamedTensor& parameter : part.parameters) {
        const int number = options_.parameter_group ? options_.parameter_group(parameter.name, parameter.value) : 0;
        const Param& param = params.at(parameter.value.unsafeGetTensorImpl());
        kinds[{parameter.value.scalar_type(), parameter.value.requires_grad(), number, param.spec.placement.view}]
            .push_back(param);
      }
      for (auto& [kind, parameters] : kinds) {
        flat.parameter_group = std::get<2>(kind);
        const FlatRanks ranks = ranks_of(parameters[0]);
        unit.flats.push_back(std::make_unique<FlatParameters>(std::move(parameters), ranks, flat));
      }
    }
  }

  void release() {
    check_sharded();
    for (const UnitState& unit : units_)
      for (const auto& flat : unit.flats) flat->give_back();
    remove_hooks();
    released_ = true;
  }
  void check_sharded() const {
    known_.context().check();
    require<ConfigError>(!released_, "fully_shard: the model was released\n  fix: call the module itself");
  }

  void remove_hooks() {
    if (released_) return;
    set_batch_norm_group(*module_, nullptr);
    if (hooked_) hooked_->remove_hooks();
  }

  std::shared_ptr<CallHooks> hooks(std::size_t unit) { return std::make_shared<Hooks>(shared_from_this(), unit); }

  std::vector<at::Tensor> shards(std::optional<int> parameter_group = std::nullopt) const {
    std::vector<at::Tensor> out;
    for (const UnitState& unit : units_)
      for (const auto& flat : unit.flats)
        if (flat->trained() && parameter_group.value_or(flat->parameter_group()) == flat->parameter_group())
          out.push_back(flat->shard());
    return out;
  }

  std::vector<KeptTensor> kept() const {
    std::vector<KeptTensor> out;
    for (const UnitState& unit : units_)
      for (const auto& flat : unit.flats) out.push_back(flat->kept());
    return out;
  }
  std::vector<WholeParameter> whole_parameters() const {
    std::vector<WholeParameter> out;
    for (const UnitState& unit : units_)
      for (const auto& flat : unit.flats)
        for (const Param& parameter : flat->parameters())
          out.push_back({parameter.name, parameter.spec.shape, flat->shard().scalar_type()});
    return out;
  }
  const std::vector<NamedTensor>& buffers() const { return buffers_; }
  Group& group() const {
    known_.context().check();
    return group_;
  }
  const ParamMesh* mesh() const { return mesh_ ? &*mesh_ : nullptr; }
  const torch::nn::Module& module() const { return *module_; }

  std::vector<UnitSize> sizes() const {
    std::vector<UnitSize> out;
    for (const UnitState& unit : units_) {
      out.push_back({unit.name, 0});
      for (const auto& flat : unit.flats) out.back().elements += flat->numel();
    }
    return out;
  }

  void zero_grad() {
    for (at::Tensor shard : shards()) shard.mutable_grad() = at::Tensor();
    forget_whole_gradients();
  }

  void forget_whole_gradients() {
    for (const UnitState& unit : units_)
      for (const auto& flat : unit.flats) flat->forget_gradients();
  }

  double clip_grad_norm(double max_norm) const {
    check_sharded();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& shard : shards())
      if (shard.grad().defined()) gradients.push_back(shard.grad());
    if (mesh_)
      return clip_gradients(gradients, counted_gradients(kept(), mesh()), max_norm, device_,
                            {&group_, &mesh_->mesh().group(Axis::tp)});
    std::vector<Group*> others;
    if (options_.sharding != Sharding::no_shard) others.push_back(&group_);
    return clip_gradients(gradients, gradients, max_norm, shards()[0].device(), others);
  }

  void for_each_whole(const std::function<void(const std::string&, const at::Tensor&)>& f) const {
    check_sharded();
    for (const UnitState& unit : units_)
      for (const auto& flat : unit.flats) {
        const at::Tensor all = flat->gathered_shards();
        for (std::size_t i = 0; i < flat->parameters().size(); ++i) f(flat->parameters()[i].name, flat->full(all, i));
      }
    for (const NamedTensor& buffer : buffers_) f(buffer.name, buffer.value);
  }

  void with_whole_parameters(const std::function<void()>& f) {
    check_sharded();
    const at::NoGradGuard no_grad;
    struct Whole {
      FlatParameters& flat;
      at::Tensor all;
      std::vector<at::Tensor> before;
    };
    std::vector<Whole> wholes;
    const auto restore = [&](bool keeps) {
      is_whole_ = false;
      for (const Whole& whole : wholes) {
        for (std::size_t i = 0; i < whole.before.size(); ++i) {
          const at::Tensor& value = whole.flat.parameters()[i].value;
          // torch::load gives a parameter other memory.
          if (const at::Tensor here = whole.flat.part(whole.all, i); !here.is_alias_of(value)) here.copy_(value);
          set_memory(value, whole.before[i]);
        }
        if (keeps) whole.flat.set_shard(whole.all);
      }
    };
    for (const UnitState& unit : units_)
      for (const auto& flat : unit.flats) {
        flat->free();
        Whole whole{*flat, flat->gathered_shards(), {}};
        for (std::size_t i = 0; i < flat->parameters().size(); ++i) {
          const at::Tensor& value = flat->parameters()[i].value;
          whole.before.push_back(value.detach());
          set_memory(value, flat->part(whole.all, i));
        }
        wholes.push_back(std::move(whole));
      }
    is_whole_ = true;
    try {
      f();
    } catch (...) {
      restore(false);
      throw;
    }
    restore(true);
  }

  bool syncs = true;
  const FullyShardOptions& options() const { return options_; }

 private:
  struct UnitState {
    std::string name = {};
    std::vector<std::unique_ptr<FlatParameters>> flats = {};
    bool has_gradients = false;              // was called since its last reduction
    std::set<std::int64_t> open_calls = {};  // whose backward has begun, but not ended

    void start_gather() const {
      for (const auto& flat : flats) flat->start_gather();
    }
    void finish_gather() const {
      for (const auto& flat : flats) flat->finish_gather();
    }
    void free() const {
      for (const auto& flat : flats) flat->free();
    }
    void finish_reduction() const {
      for (const auto& flat : flats) flat->finish_reduction();
    }
  };

  class Hooks final : public CallHooks {
   public:
    Hooks(std::shared_ptr<Core> core, std::size_t unit) : core_(std::move(core)), unit_(unit) {}
    std::int64_t before_forward() override { return core_->before_forward(unit_); }
    void after_forward(std::int64_t call) override { core_->after_forward(unit_, call); }
    void before_backward(std::int64_t call) override { core_->before_backward(unit_, call); }
    void after_backward(std::int64_t call) override { core_->after_backward(unit_, call); }

   private:
    const std::shared_ptr<Core> core_;
    const std::size_t unit_;
  };

  void check_replicate() const {
    if (options_.replicate == 1) return;
    require<ConfigError>(mesh_.has_value(), "fully_shard: replicate = ", options_.replicate, " needs a mesh\n",
                         "  fix: fully_shard(net, mesh, options)");
    require<ConfigError>(options_.replicate > 0 && group_.size() % options_.replicate == 0,
                         "fully_shard: replicate = ", options_.replicate, " does not divide the ", group_.size(),
                         " ranks of dp x cp\n  fix: a divisor of ", group_.size());
  }

  std::map<const c10::TensorImpl*, Param> params_by_tensor() const {
    std::map<const c10::TensorImpl*, Param> out;
    for (Param& param : distinct_params(*module_, mesh())) {
      require<ConfigError>(!param.spec.set_by_layer || !mesh_, "fully_shard: ", param.name,
                           " is set by its layer, not by an optimizer, and must be whole on every rank",
                           "\n  fix: leave this layer out of the sharded module");
      require<ConfigError>(mesh_ || param.cut_degree == 1, "fully_shard: ", param.name, " is cut over ",
                           param.cut_degree, " ranks\n  fix: fully_shard(net, mesh), with the mesh of its layer");
      out.emplace(param.value.unsafeGetTensorImpl(), std::move(param));
    }
    return out;
  }

  FlatRanks ranks_of(const Param& param) const {
    FlatRanks ranks{.all = mesh_ ? &mesh_->sum_group(param.spec) : &group_, .mean_over = group_.size(), .mesh = mesh()};
    if (options_.sharding == Sharding::no_shard) {
      ranks.replicas = ranks.all;
    } else if (options_.replicate == 1) {
      ranks.shards = ranks.all;
    } else {
      require<ConfigError>(ranks.all->size() % options_.replicate == 0, "fully_shard: replicate = ", options_.replicate,
                           " does not divide the ", ranks.all->size(), " ranks that hold ", param.name,
                           "\n  fix: a divisor of ", ranks.all->size());
      const ShardGroups groups = shard_groups(*ranks.all, options_.replicate, mesh_->mesh());
      ranks.shards = groups.shards;
      ranks.replicas = groups.replicas;
    }
    return ranks;
  }

  /// What cannot be sharded because it is not there.
  void check_values(const std::vector<NamedTensor>& tensors) const {
    for (const auto& [name, value] : tensors) {
      require<ConfigError>(!value.is_meta() || options_.fill, "fully_shard: ", name,
                           " is on `meta`, and has no values\n  fix: FullyShardOptions::fill, which writes them; ",
                           "one that does nothing leaves zeros, for a checkpoint to be loaded");
      require<ConfigError>(value.is_meta() || has_values(value), "fully_shard: ", name,
                           " has no values: it belongs to another sharded model\n  fix: release() that one first");
    }
  }

  void share_buffers() {
    for (const NamedTensor& buffer : buffers_) {
      at::TensorOptions wanted = buffer.value.options().device(device_);
      if (options_.precision.buffer && buffer.value.is_floating_point())
        wanted = wanted.dtype(*options_.precision.buffer);
      if (buffer.value.is_meta()) {
        const at::Tensor values = at::zeros(buffer.value.sizes(), wanted);
        if (group_.rank() == 0) options_.fill(buffer.name, values);
        set_memory(buffer.value, values);
      } else {
        set_memory(buffer.value, buffer.value.to(wanted));
      }
    }
    broadcast_all(buffer_values(), group_);
    if (mesh_) broadcast_all(buffer_values(), mesh_->mesh().group(Axis::tp));
  }
  std::vector<at::Tensor> buffer_values() const {
    std::vector<at::Tensor> out;
    for (const NamedTensor& buffer : buffers_) out.push_back(buffer.value);
    return out;
  }

  void begin_forward() {
    known_.check();
    calls_.swap(last_calls_);
    calls_.clear();
    if (std::exchange(in_backward_, false)) {
      // The last backward threw, and somebody caught it: autograd has not called finish_backward().
      for (; !in_flight_.empty(); in_flight_.pop_front()) units_[in_flight_.front()].finish_reduction();
      for (UnitState& unit : units_) unit.open_calls.clear();
    }
    // What a forward without a backward has left: the optimizer may have changed the shards since.
    for (const UnitState& unit : units_) unit.free();
  }

  // A call's number is its place in the order of calls of its forward.
  std::int64_t before_forward(std::size_t unit) {
    if (is_whole_) return -1;
    if (unit == 0) begin_forward();
    require<ConfigError>(unit == 0 || in_forward_ || in_backward_, "fully_shard: unit '", units_[unit].name,
                         "' was called outside of a call of the sharded model: it might have the values of an earlier ",
                         "step\n  fix: call the sharded model, model(x), not the module; or release() it first");
    if (unit == 0) in_forward_ = true;
    const std::size_t place = calls_.size();
    calls_.push_back(unit);
    units_[unit].start_gather();
    if (options_.forward_prefetch && place + 1 < last_calls_.size() && last_calls_[place] == unit)
      units_[last_calls_[place + 1]].start_gather();
    units_[unit].finish_gather();
    if (at::GradMode::is_enabled()) units_[unit].has_gradients = true;
    return static_cast<std::int64_t>(place);
  }

  void after_forward(std::size_t unit, std::int64_t call) {
    if (is_whole_) return;
    if (unit == 0) in_forward_ = false;
    const bool trains = at::GradMode::is_enabled();
    // Backward begins with the last call, and ends with the root.
    const bool is_last = static_cast<std::size_t>(call) + 1 == last_calls_.size() && last_calls_.back() == unit;
    if (trains && (unit == 0 || is_last || options_.sharding != Sharding::full_shard)) return;
    units_[unit].free();
    if (unit != 0) return;
    for (const UnitState& other : units_) other.free();  // also those that were prefetched, but not called
  }

  void before_backward(std::size_t unit, std::int64_t call) {
    if (!in_backward_) {
      check_sharded();
      known_.check();
      in_backward_ = true;
      if (std::exchange(hidden_, false)) forget_whole_gradients();
      const std::shared_ptr<Core> self = shared_from_this();
      torch::autograd::Engine::get_default_engine().queue_callback([self] { self->finish_backward(); });
    }
    require<ConfigError>(!at::GradMode::is_enabled(), "fully_shard: a backward with create_graph, through unit '",
                         units_[unit].name, "': second derivatives would read parameters that are freed by then\n",
                         "  fix: data_parallel, or a loss without gradients of gradients");
    units_[unit].open_calls.insert(call);
    units_[unit].has_gradients = true;  // again, for another backward through the same graph
    units_[unit].start_gather();
    if (options_.backward_prefetch == BackwardPrefetch::pre) prefetch_before(call);
    units_[unit].finish_gather();
  }

  void after_backward(std::size_t unit, std::int64_t call) {
    units_[unit].open_calls.erase(call);
    // The root's parameters may be used by other units. Between two calls of one unit, the first begins its backward
    // before the second ends.
    if (unit == 0 || !units_[unit].open_calls.empty()) return;
    units_[unit].free();
    if (options_.backward_prefetch == BackwardPrefetch::post) prefetch_before(call);
    if (syncs) reduce(unit);
  }

  void prefetch_before(std::int64_t call) {
    if (call > 0 && static_cast<std::size_t>(call) < calls_.size())
      units_[calls_[static_cast<std::size_t>(call) - 1]].start_gather();
  }

  void reduce(std::size_t unit) {
    for (const auto& flat : units_[unit].flats) flat->start_reduction();
    units_[unit].has_gradients = false;
    in_flight_.push_back(unit);
    if (in_flight_.size() <= 2) return;  // bounds the memory of gradients on their way
    units_[in_flight_.front()].finish_reduction();
    in_flight_.pop_front();
  }

  void finish_backward() {
    in_backward_ = false;
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      units_[unit].open_calls.clear();  // those without an input that needs a gradient
      units_[unit].free();
      if (syncs && units_[unit].has_gradients) reduce(unit);
    }
    for (; !in_flight_.empty(); in_flight_.pop_front()) units_[in_flight_.front()].finish_reduction();
    if (!syncs) return;
    for (const UnitState& unit : units_)
      for (const auto& flat : unit.flats)
        for (const Param& parameter : flat->parameters())
          require(!parameter.value.grad().defined(), "fully_shard: the gradient of ", parameter.name,
                  " arrived after those of its unit ", unit.name, " were reduced");
    for (const UnitState& unit : units_)
      for (const auto& flat : unit.flats) flat->hide_gradients();
    hidden_ = true;
    sync_buffers(buffer_values(), options_.buffers, group_);
  }

  const std::shared_ptr<torch::nn::Module> module_;
  Group& group_;  // the ranks that see other samples
  std::optional<ParamMesh> mesh_;
  const FullyShardOptions options_;
  const KnownParameters known_;
  std::vector<NamedTensor> buffers_;
  std::optional<HookedUnits> hooked_;
  std::vector<UnitState> units_;                 // [0] is the root
  std::vector<std::size_t> calls_, last_calls_;  // units in the order of calls, of this forward and the one before
  std::deque<std::size_t> in_flight_;            // units whose gradients are being reduced
  at::Device device_ = at::kCPU;
  bool in_forward_ = false;  // of the root; one that threw counts until the next
  bool in_backward_ = false;
  bool is_whole_ = false;  // within with_whole_parameters(): calls are ordinary ones
  bool hidden_ = false;    // FlatParameters::hide_gradients()
  bool released_ = false;
};

ShardedModule::ShardedModule(std::shared_ptr<torch::nn::Module> module, Group& group, const FullyShardOptions& options)
    : core_(std::make_shared<Core>(std::move(module), group, nullptr, options)) {
  shard();
}
ShardedModule::ShardedModule(std::shared_ptr<torch::nn::Module> module, Mesh& mesh, const FullyShardOptions& options)
    : core_(std::make_shared<Core>(std::move(module), mesh.token_group(), &mesh, options)) {
  shard();
}
/// A module that cannot be sharded is left without hooks.
void ShardedModule::shard() try { core_->shard(); } catch (...) {
  core_->remove_hooks();
  throw;
}
ShardedModule::~ShardedModule() {
  if (core_) core_->remove_hooks();
}
ShardedModule::ShardedModule(ShardedModule&&) noexcept = default;

std::vector<at::Tensor> ShardedModule::shards() const { return core_->shards(); }
std::vector<at::Tensor> ShardedModule::shards(int parameter_group) const {
  std::vector<at::Tensor> out = core_->shards(parameter_group);
  require<ConfigError>(!out.empty(), "fully_shard: no trained parameter is in group ", parameter_group,
                       "\n  fix: FullyShardOptions::parameter_group returns the group of each");
  return out;
}
std::vector<at::Tensor> ShardedModule::shards_of(std::optional<int> parameter_group) const {
  return core_->shards(parameter_group);
}
std::vector<ShardedModule::UnitSize> ShardedModule::units() const { return core_->sizes(); }
std::string ShardedModule::units_text() const {
  std::string out;
  for (const UnitSize& unit : units())
    out += text(unit.name.empty() ? "(the rest)" : unit.name, ": ", unit.elements, " elements\n");
  return out;
}
void ShardedModule::release() { core_->release(); }
std::vector<KeptTensor> ShardedModule::kept() const { return core_->kept(); }
std::vector<NamedTensor> ShardedModule::buffers() const { return core_->buffers(); }
bool ShardedModule::is_replicated() const { return core_->options().sharding == Sharding::no_shard; }
const torch::nn::Module& ShardedModule::base_module() const { return core_->module(); }
Group& ShardedModule::group() const { return core_->group(); }
const ParamMesh* ShardedModule::mesh() const { return core_->mesh(); }
std::vector<ShardedModule::WholeParameter> ShardedModule::whole_parameters() const { return core_->whole_parameters(); }
void ShardedModule::zero_grad() { core_->zero_grad(); }
void ShardedModule::forget_unreduced_gradients() { core_->forget_whole_gradients(); }
double ShardedModule::clip_grad_norm(double max_norm) { return core_->clip_grad_norm(max_norm); }
void ShardedModule::for_each_whole(const std::function<void(const std::string&, const at::Tensor&)>& f) const {
  core_->for_each_whole(f);
}
std::vector<NamedTensor> ShardedModule::state() const {
  std::vector<NamedTensor> out;
  for_each_whole([&out](const std::string& name, const at::Tensor& value) {
    out.push_back({name, value.to(at::kCPU, value.scalar_type(), false, /*copy=*/true)});
  });
  return out;
}
void ShardedModule::with_whole_parameters(const std::function<void()>& f) { core_->with_whole_parameters(f); }
std::shared_ptr<CallHooks> ShardedModule::root() const {
  core_->check_sharded();
  return core_->hooks(0);
}
std::optional<at::ScalarType> ShardedModule::input_dtype() const { return core_->options().precision.param; }

ShardedModule::NoSync::NoSync(ShardedModule& sharded) : syncs_(sharded.core_->syncs), before_(syncs_) {
  syncs_ = false;
}

}  // namespace trireme
