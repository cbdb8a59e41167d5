#pragma once
// Fully sharded data parallelism for any torch::nn::Module: each rank keeps a part of every parameter, its gradient and
// its optimizer state, and the whole only while it is in use.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/nn/modules/container/sequential.h>

#include "trireme/comm/param_mesh.hpp"
#include "trireme/module/kept_tensor.hpp"
#include "trireme/module/module_tensors.hpp"
#include "trireme/module/unit.hpp"
#include "trireme/module/wrap_policy.hpp"

namespace trireme {

enum class Sharding {
  no_shard,       // every rank keeps everything; gradients are all-reduced
  shard_grad_op,  // parameters are gathered for forward and freed after backward (ZeRO-2)
  full_shard,     // also freed after forward, and gathered again for backward (ZeRO-3)
};

/// When the parameters of the next unit of backward are gathered.
enum class BackwardPrefetch {
  none,  // when it begins
  pre,   // before the computation of the current unit: most overlap, one more unit in memory
  post,  // after it, before its gradients are reduced
};

struct MixedPrecision {
  std::optional<at::ScalarType> param = std::nullopt;   // in forward and backward; the shards keep their dtype
  std::optional<at::ScalarType> reduce = std::nullopt;  // of gradients that travel; else as `param`
  std::optional<at::ScalarType> buffer = std::nullopt;  // of floating-point buffers
};

struct FullyShardOptions {
  Sharding sharding = Sharding::full_shard;
  MixedPrecision precision = {};
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  bool forward_prefetch = true;  // gather the next unit during the current one, in the order of the last forward
  GradientScale gradients = GradientScale::mean;
  BufferSync buffers = BufferSync::broadcast;
  WrapPolicy policy = wrap_always();
  /// HSDP, for a module on a mesh: this many groups of ranks have all shards each. Parameters are gathered within a
  /// group; gradients are reduced over all.
  int replicate = 1;
  /// The group of the optimizer that a parameter belongs to, if there are several: shards(0), shards(1), ... Without it
  /// all are in group 0.
  std::function<int(const std::string& name, const at::Tensor& value)> parameter_group = nullptr;
  /// Of the shards and buffers, and of all computation: a module on the CPU moves there unit by unit, so that it need
  /// not fit. None: that of its parameters; for those on the CPU or on at::kMeta the GPU of the group, if that is over
  /// NCCL, else the CPU.
  std::optional<at::Device> device = std::nullopt;
  /// For a module with parameters or buffers on at::kMeta: rank 0 calls it for each of them, and all ranks get the
  /// values. One that does nothing leaves zeros, for a checkpoint to be loaded.
  FillValues fill = nullptr;
};

/// What FullyShard<M> is without the type of the module.
class ShardedModule {
 public:
  /// Collective: all ranks start with the weights and buffers of rank 0. In memory there are, at most, the module as it
  /// was and one unit more. ConfigError if there is no parameter that needs a gradient, if the modules of two ranks
  /// differ, or for what cannot be sharded: sparse gradients, a module that is sharded already.
  ShardedModule(std::shared_ptr<torch::nn::Module> module, Group& group, const FullyShardOptions& options);
  /// Over the ranks of a mesh that see other samples (dp x cp; for experts edp). The module may have tensor-parallel
  /// layers and experts (Layer): each rank shards its part of them.
  ShardedModule(std::shared_ptr<torch::nn::Module> module, Mesh& mesh, const FullyShardOptions& options);
  ~ShardedModule();
  ShardedModule(ShardedModule&&) noexcept;
  ShardedModule& operator=(ShardedModule&&) = delete;

  /// For a torch optimizer: one flat tensor per unit, dtype and parameter group, in the dtype that the parameters had.
  std::vector<at::Tensor> shards() const;
  /// Those of one group (FullyShardOptions::parameter_group). ConfigError if it has none.
  std::vector<at::Tensor> shards(int parameter_group) const;
  /// The same; none if it has none. nullopt: all.
  std::vector<at::Tensor> shards_of(std::optional<int> parameter_group) const;
  /// The names of the units, the root first, with the elements of each.
  struct UnitSize {
    std::string name;
    std::int64_t elements;
  };
  std::vector<UnitSize> units() const;
  /// The same as lines of text.
  std::string units_text() const;

  /// What this rank keeps, trained or not, and the buffers: for checkpoints (module_checkpoint.hpp).
  std::vector<KeptTensor> kept() const;
  std::vector<NamedTensor> buffers() const;
  bool is_replicated() const;  // Sharding::no_shard
  const torch::nn::Module& base_module() const;
  /// The ranks that see other samples.
  Group& group() const;
  /// nullptr: it was sharded over a group.
  const ParamMesh* mesh() const;
  /// What all parameters are, in the order of for_each_whole().
  struct WholeParameter {
    std::string name;
    std::vector<std::int64_t> sizes;  // of the full parameter
    at::ScalarType dtype;             // of the shards
  };
  std::vector<WholeParameter> whole_parameters() const;

  /// Forgets all gradients, also those of microbatches with no_sync() that no reduction followed, which an optimizer's
  /// zero_grad() does not see.
  void zero_grad();
  /// Those of microbatches alone: for a step that ended with an exception.
  void forget_unreduced_gradients();

  /// The norm of all gradients, which are scaled if it exceeds max_norm. On a mesh over all ranks of a pipeline stage.
  /// Collective.
  double clip_grad_norm(double max_norm);

  /// f(name, value) for every parameter and buffer, whole, on every rank, one unit in memory at a time; also those of
  /// tensor-parallel layers. Collective.
  void for_each_whole(const std::function<void(const std::string& name, const at::Tensor& value)>& f) const;
  /// Parameters and buffers, whole, on the CPU of every rank. Collective.
  std::vector<NamedTensor> state() const;
  /// Runs f() while the module has all its parameters, in their own dtypes, as before it was sharded: for torch::save,
  /// torch::load and whatever reads or writes weights. What f() writes is kept; all ranks must write the same. In a
  /// tensor-parallel layer each rank has its part. Collective.
  void with_whole_parameters(const std::function<void()>& f);

  /// Ends the sharding: the module is an ordinary one again, with all parameters whole on every rank, and this object
  /// must not be called any more. In a tensor-parallel layer each rank has its part. Collective.
  void release();

  /// While it exists, gradients are not reduced: for the microbatches before the last. They stay whole on each rank.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(ShardedModule& sharded);
    ~NoSync() { syncs_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    bool& syncs_;
    const bool before_;
  };
  NoSync no_sync() { return NoSync(*this); }

 protected:
  std::shared_ptr<CallHooks> root() const;
  std::optional<at::ScalarType> input_dtype() const;

 private:
  void shard();

  class Core;
  std::shared_ptr<Core> core_;
};

/// A sharded module: call it instead of the module.
///
///   auto model = fully_shard(net, group);
///   torch::optim::AdamW optimizer(model.shards(), 1e-3);   // made after the module was sharded
///   ...
///   optimizer.zero_grad();
///   loss(model(x), y).backward();      // every shard has its part of the reduced gradient
///   optimizer.step();
///
/// Units are gathered and freed as a whole: the Unit<M>s and the children of torch::nn::Sequentials that the policy
/// chooses; the rest of the parameters is the root unit. A child of a Sequential must map one tensor to one tensor. All
/// ranks must call the same units in the same order, and call backward() equally often. Outside of a call the module's
/// own parameters have neither values nor gradients, and reading them is an error: see with_whole_parameters() and
/// release(). A tensor that leaves a unit other than as its result must not take part in the loss. The optimizer is
/// made of shards(), so this class never sees it, and cannot refuse one that computes with all gradients at once:
/// torch::optim::LBFGS would take dot products of this rank's part, and every rank would take other steps. fit()
/// refuses it.
template <class M>
class [[nodiscard]] FullyShard : public ShardedModule {
 public:
  FullyShard(std::shared_ptr<M> module, Group& group, const FullyShardOptions& options)
      : ShardedModule(module, group, options), module_(std::move(module)) {}
  FullyShard(std::shared_ptr<M> module, Mesh& mesh, const FullyShardOptions& options)
      : ShardedModule(module, mesh, options), module_(std::move(module)) {}

  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    std::tuple<std::decay_t<Arguments>...> inputs(std::forward<Arguments>(arguments)...);
    if (const auto dtype = input_dtype())
      for_each_tensor(inputs, [dtype](at::Tensor& x) {
        if (x.is_floating_point()) x = x.to(*dtype);
      });
    return std::apply(
        [this](auto&... them) {
          return call_in_unit(root(), [this](auto&... these) { return module_->forward(these...); }, them...);
        },
        inputs);
  }
  M& module() { return *module_; }
  /// Ends the sharding, and returns the module whole. Collective.
  std::shared_ptr<M> release() {
    ShardedModule::release();
    return module_;
  }

 private:
  std::shared_ptr<M> module_;
};

/// `ranks`: a Group, or a Mesh for a module with tensor-parallel layers or experts, and for HSDP.
template <class M, class Ranks>
FullyShard<M> fully_shard(std::shared_ptr<M> module, Ranks& ranks, const FullyShardOptions& options = {}) {
  return FullyShard<M>(std::move(module), ranks, options);
}
template <class M, class Ranks>
FullyShard<M> fully_shard(const torch::nn::ModuleHolder<M>& module, Ranks& ranks,
                          const FullyShardOptions& options = {}) {
  return FullyShard<M>(module.ptr(), ranks, options);
}
/// Modules that are called one after the other.
template <class Ranks>
FullyShard<torch::nn::SequentialImpl> fully_shard(std::vector<torch::nn::AnyModule> units, Ranks& ranks,
                                                  const FullyShardOptions& options = {}) {
  auto chain = std::make_shared<torch::nn::SequentialImpl>();
  for (torch::nn::AnyModule& unit : units) chain->push_back(std::move(unit));
  return {std::move(chain), ranks, options};
}

}  // namespace trireme
