#pragma once
// fit(): trains any model on the devices that there are, with one call.
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include "trireme/comm/mesh.hpp"
#include "trireme/module/dataset.hpp"
#include "trireme/module/fully_shard.hpp"
#include "trireme/module/parallelism.hpp"

namespace trireme {

/// What a model returns: logits, and its own loss if it computes one.
struct ModelOutput {
  at::Tensor logits, loss;
};
using ModelInputs = std::map<std::string, at::Tensor>;

/// The mean over the samples.
using FitLoss = std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& target)>;
/// Called on each rank with its parameters, or its shards of them. Not for torch::optim::LBFGS, which fit() refuses:
/// it needs all gradients on each rank, and a closure.
using OptimizerMaker = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> parameters)>;

/// The same for several groups of parameters, FitOptions::parameter_group.
using GroupOptimizerMaker =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<std::vector<at::Tensor>> groups)>;
/// Called on each rank with its optimizer.
using SchedulerMaker = std::function<std::unique_ptr<torch::optim::LRScheduler>(torch::optim::Optimizer& optimizer)>;

/// After an epoch.
struct FitEpoch {
  int epoch = 0;  // 1: the first
  double train_loss = 0;
  std::optional<double> validation_loss = std::nullopt;  // none: it was not validated
  std::optional<double> validation_accuracy = std::nullopt;
  double learning_rate = 0;  // of the first group of parameters, for the next epoch
};

struct FitOptions {
  std::optional<Parallelism> parallel = std::nullopt;  // none: one device
  std::optional<at::Device> device = std::nullopt;     // that one; none: the first GPU, or the CPU
  int epochs = 1;
  std::int64_t batch_size = 32;  // per device with FSDP; of the pipeline as a whole
  bool shuffle = true;
  std::uint64_t seed = 0;  // of the order of samples
  std::optional<at::ScalarType> autocast = std::nullopt;
  bool grad_scaler = false;            // for f16
  double max_norm = 0;                 // of the gradients; 0: not clipped
  std::filesystem::path profile = {};  // a folder for a Chrome trace of each rank
  std::ostream* log = nullptr;         // one line for the batch size, and one for each epoch
  SchedulerMaker scheduler = nullptr;  // of the learning rates; its step() is called after each epoch
  bool scheduler_by_step = false;      // after each update instead
  int validate_every = 0;              // epochs; 0: after the last only
  /// On rank 0, after each epoch; false: that was the last one, on all ranks.
  std::function<bool(const FitEpoch&)> on_epoch = nullptr;
  /// On rank 0, after each step: the steps of this call, and the mean loss of the samples of this one.
  std::function<void(std::int64_t step, double loss)> on_step = nullptr;
  /// For several groups of parameters: the group of each, and the optimizer of all, which is used instead of the one
  /// that fit() is given.
  std::function<int(const std::string& name, const at::Tensor& value)> parameter_group = nullptr;
  GroupOptimizerMaker optimizer_of_groups = nullptr;
  /// A folder for checkpoints (module_checkpoint.hpp), also of the scheduler. If it has one, training goes on after it,
  /// on any number of devices, by FSDP or as a pipeline.
  std::filesystem::path checkpoints = {};
  int checkpoint_every = 1;          // epochs; the last one always
  std::int64_t checkpoint_keep = 2;  // the newest ones; 0: all
  /// Steps between comparisons of the parameters and buffers of all ranks (compare_replicas.hpp), with
  /// Sharding::no_shard; 0: never. ComparisonFailed on all ranks.
  std::int64_t compare_replicas_every = 0;
  /// The ranks that this process is one of, all along dp, or along pp for a pipeline. None: a thread per device.
  Mesh* mesh = nullptr;
  /// In a program that runs as ranks, without a mesh: this rank trains a model by itself. Else that is a ConfigError.
  bool alone = false;
};

struct FitResult {
  double validation_loss = 0;
  double validation_accuracy = 0;         // share of the samples whose largest logit is the target; NaN without classes
  std::vector<double> train_losses = {};  // by epoch, also those of before a checkpoint
  std::vector<FitEpoch> epochs = {};      // those of this call
  double seconds = 0;                     // of training and validation
};

/// What fit() needs of a model. fit_model() makes one of any module.
class FitModel {
 public:
  virtual ~FitModel() = default;
  virtual torch::nn::Module& module() = 0;
  /// With a module of its own: module().clone().
  virtual std::unique_ptr<FitModel> copy() const = 0;
  virtual ModelOutput call(const Samples& samples) = 0;
  /// From now on call() is that of the sharded module.
  virtual ShardedModule& shard(Group& group, const FullyShardOptions& options) = 0;
  virtual void end_sharding() = 0;
  /// nullptr: the model is not a chain of modules.
  virtual torch::nn::Sequential stages() = 0;
};

/// Trains `model`, validates it, and leaves the trained parameters and buffers in it. One rank
/// per device: threads of this process with copies of the model, or the ranks of `options.mesh`, which all call fit()
/// alike. Losses and results depend on the number of devices by rounding only, for the same effective batch size.
/// ConfigError for what the devices or the model do not allow. An exception on several ranks of `options.mesh` may
/// leave the model without values, which are on other ranks: FitOptions::checkpoints has the last ones.
FitResult fit(FitModel& model, const std::shared_ptr<const Dataset>& train,
              const std::shared_ptr<const Dataset>& validation, const FitLoss& loss, const OptimizerMaker& optimizer,
              const FitOptions& options);

struct CrossValidation {
  std::vector<FitResult> folds;
  double mean_loss() const;
  double mean_accuracy() const;
};
/// k times fit(), each time from the model as it is now: fold i is validated with the i-th part of the data, which a
/// random order cuts into k, and trained with the rest. The model stays as it is.
CrossValidation cross_validate(int k, FitModel& model, const std::shared_ptr<const Dataset>& data, const FitLoss& loss,
                               const OptimizerMaker& optimizer, const FitOptions& options);

namespace fit_detail {

ModelOutput output_of(const at::Tensor& logits);
ModelOutput output_of(const ModelInputs& named);
template <class Output>
  requires requires(const Output& out) { out.logits, out.loss; }
ModelOutput output_of(const Output& out) {
  return {out.logits, out.loss};
}
ModelInputs by_name(const Samples& samples);
[[noreturn]] void throw_wrong_inputs(std::size_t count);

/// f: the module's forward, or that of its sharded form.
template <class M, class F>
ModelOutput call_model(const F& f, const Samples& samples) {
  using T = const at::Tensor&;
  const std::vector<at::Tensor>& x = samples.inputs;
  constexpr bool chain = std::is_same_v<M, torch::nn::SequentialImpl>;  // whose forward seems to take anything
  if constexpr (!chain && requires(M& m, const ModelInputs& named) { m.forward(named); }) {
    return output_of(f(by_name(samples)));
  } else {
    if constexpr (chain || requires(M& m, T a) { m.forward(a); })
      if (x.size() == 1) return output_of(f(x[0]));
    if constexpr (!chain && requires(M& m, T a, T b) { m.forward(a, b); })
      if (x.size() == 2) return output_of(f(x[0], x[1]));
    if constexpr (!chain && requires(M& m, T a, T b, T c) { m.forward(a, b, c); })
      if (x.size() == 3) return output_of(f(x[0], x[1], x[2]));
    throw_wrong_inputs(x.size());
  }
}

template <class M>
class FitModelOf final : public FitModel {
 public:
  explicit FitModelOf(std::shared_ptr<M> module) : module_(std::move(module)) {}
  torch::nn::Module& module() override { return *module_; }
  std::unique_ptr<FitModel> copy() const override {
    return std::make_unique<FitModelOf>(std::dynamic_pointer_cast<M>(module_->clone()));
  }
  ModelOutput call(const Samples& samples) override {
    if (sharded_) return call_model<M>([this](const auto&... x) { return (*sharded_)(x...); }, samples);
    return call_model<M>([this](const auto&... x) { return module_->forward(x...); }, samples);
  }
  ShardedModule& shard(Group& group, const FullyShardOptions& options) override {
    return sharded_.emplace(module_, group, options);
  }
  void end_sharding() override { sharded_.reset(); }
  torch::nn::Sequential stages() override {
    if constexpr (std::is_same_v<M, torch::nn::SequentialImpl>) return torch::nn::Sequential(module_);
    return nullptr;
  }

 private:
  const std::shared_ptr<M> module_;
  std::optional<FullyShard<M>> sharded_;
};

}  // namespace fit_detail

/// A model is any module whose forward takes up to three tensors, or a ModelInputs: the inputs of the samples by name,
/// and the targets as "labels". It returns the logits; or a ModelInputs or a class with `logits` and `loss`, which is
/// then used instead of a loss function.
template <class M>
fit_detail::FitModelOf<M> fit_model(std::shared_ptr<M> module) {
  return fit_detail::FitModelOf<M>(std::move(module));
}
template <class M>
fit_detail::FitModelOf<M> fit_model(const torch::nn::ModuleHolder<M>& module) {
  return fit_detail::FitModelOf<M>(module.ptr());
}

template <class M>
FitResult fit(const torch::nn::ModuleHolder<M>& module, const std::shared_ptr<const Dataset>& train,
              const std::shared_ptr<const Dataset>& validation, const FitLoss& loss, const OptimizerMaker& optimizer,
              const FitOptions& options = {}) {
  auto model = fit_model(module);
  return fit(model, train, validation, loss, optimizer, options);
}
template <class M>
CrossValidation cross_validate(int k, const torch::nn::ModuleHolder<M>& module,
                               const std::shared_ptr<const Dataset>& data, const FitLoss& loss,
                               const OptimizerMaker& optimizer, const FitOptions& options = {}) {
  auto model = fit_model(module);
  return cross_validate(k, model, data, loss, optimizer, options);
}

}  // namespace trireme
