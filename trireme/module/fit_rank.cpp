#include "trireme/module/fit_rank.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iomanip>
#include <limits>
#include <ostream>
#include <sstream>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/lbfgs.h>

#include "trireme/base/error.hpp"
#include "trireme/base/trace.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/data/sampling/permutation.hpp"
#include "trireme/module/agreed_failure.hpp"
#include "trireme/module/amp.hpp"
#include "trireme/module/compare_replicas.hpp"
#include "trireme/module/module_checkpoint.hpp"
#include "trireme/module/sync_batch_norm.hpp"

namespace trireme {
namespace {

Samples moved(Samples samples, at::Device device) {
  for (at::Tensor& x : samples.inputs) x = x.to(device);
  if (samples.targets.defined()) samples.targets = samples.targets.to(device);
  return samples;
}

at::Tensor loss_of(const ModelOutput& out, const at::Tensor& target, const FitLoss& loss) {
  if (out.loss.defined()) return out.loss;
  require<ConfigError>(loss != nullptr, "fit: no loss function, and the model returns no loss\n",
                       "  fix: give one, or return `loss` and `logits`");
  require<ConfigError>(out.logits.defined() && target.defined(), "fit: a loss needs logits and targets");
  return loss(out.logits, target);
}

// Fields of checkpoints.
constexpr const char *kLosses = "train_losses", *kScale = "loss_scale";

constexpr std::int64_t kIgnored = -100;  // the target that torch's losses ignore

/// Sums over samples; of a rank, then of all.
struct Tally {
  double loss = 0, right = 0, samples = 0, classified = 0;

  void add(const ModelOutput& out, const Samples& samples_of, const at::Tensor& mean_loss) {
    const auto count = static_cast<double>(samples_of.inputs[0].size(0));
    samples += count;
    loss += mean_loss.item<double>() * count;
    const at::Tensor& target = samples_of.targets;
    if (!out.logits.defined() || !target.defined() || !at::isIntegralType(target.scalar_type(), false)) return;
    const std::int64_t dim = class_dim(out.logits, target);
    if (dim < 0) return;
    const at::Tensor counts = target.ne(kIgnored);
    right += out.logits.argmax(dim).eq(target).logical_and_(counts).sum().item<double>();
    classified += counts.sum().item<double>();
  }
  /// The dim of the classes: the last, or 1 as in torch's losses of images; -1: neither.
  static std::int64_t class_dim(const at::Tensor& logits, const at::Tensor& target) {
    if (logits.dim() != target.dim() + 1) return -1;
    for (const std::int64_t dim : {logits.dim() - 1, std::int64_t{1}}) {
      at::DimVector rest(logits.sizes());
      rest.erase(rest.begin() + dim);
      if (at::IntArrayRef(rest) == target.sizes()) return dim;
    }
    return -1;
  }
  void sum_over(Group& group, at::Device device) {
    const at::Tensor all =
        group.all_reduce(at::tensor({loss, right, samples, classified}, at::kDouble).to(device)).wait().cpu();
    const double* sums = all.data_ptr<double>();
    *this = {sums[0], sums[1], sums[2], sums[3]};
  }
  double mean_loss() const { return loss / samples; }
  double accuracy() const { return classified > 0 ? right / classified : std::numeric_limits<double>::quiet_NaN(); }
};

/// The training of one rank.
class FitRank {
 public:
  FitRank(Mesh& mesh, at::Device device, FitModel& model, const FitJob& job)
      : job_(job),
        device_(device),
        model_(model),
        pipelined_(axis_of(job.options) == Axis::pp),
        mesh_(mesh),
        group_(mesh_.group(axis_of(job.options))),
        ranks_(group_.size()),
        tracer_({.rank = mesh.rank(), .world_size = mesh.world_group().size()}) {
    if (!job.options.profile.empty()) tracer_.enable();
    if (!job.options.parallel) model_.module().to(device_);  // else each rank moves what it has, unit by unit
    try {
      prepare();
    } catch (...) {
      give_back();
      throw;
    }
  }

  FitResult run() {
    FitResult result;
    const auto begin = std::chrono::steady_clock::now();
    const EpochOrder order{job_.train.size(), job_.options.batch_size * (pipelined_ ? 1 : ranks_), job_.options.shuffle,
                           job_.options.seed};
    announce(order);
    load(result.train_losses);
    Tally tally;
    bool is_validated = false;
    for (auto epoch = static_cast<int>(result.train_losses.size()); epoch < job_.options.epochs; ++epoch) {
      result.train_losses.push_back(train_epoch(order, epoch));
      is_validated = job_.options.validate_every > 0 && (epoch + 1) % job_.options.validate_every == 0;
      if (is_validated) tally = validate();
      result.epochs.push_back(facts_of(epoch + 1, result.train_losses.back(), is_validated ? &tally : nullptr));
      const bool is_last = !goes_on(result.epochs.back()) || epoch + 1 == job_.options.epochs;
      if (is_last || (epoch + 1) % job_.options.checkpoint_every == 0) save(result.train_losses);
      if (is_last) break;
    }
    if (!is_validated) tally = validate();
    result.validation_loss = tally.mean_loss();
    result.validation_accuracy = tally.accuracy();
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!job_.options.profile.empty())
      tracer_.write(job_.options.profile / text("trace-rank", mesh_.rank(), ".json.gz"));
    mesh_.end_step();
    return result;
  }

  /// Collective.
  std::vector<NamedTensor> state() {
    if (pipe_) return pipe_->state();
    if (sharded_) return sharded_->state();
    std::vector<NamedTensor> out = distinct_parameters(model_.module());
    for (const auto& buffer : model_.module().named_buffers()) out.push_back({buffer.key(), buffer.value()});
    return out;
  }

  /// After a failure. On several ranks nobody knows whether the others take part in it.
  void give_back() {
    if (ranks_ > 1) return;
    try {
      if (sharded_) sharded_->release();
      if (pipe_) pipe_->release();
    } catch (const std::exception&) {  // what failed first is what counts
    }
  }

 private:
  /// The trained parameters of a module by group.
  std::vector<std::vector<at::Tensor>> groups_of(const torch::nn::Module& module) const {
    std::vector<std::vector<at::Tensor>> out;
    for (const auto& [name, value] : distinct_parameters(module)) {
      if (!value.requires_grad()) continue;
      const int number = job_.options.parameter_group(name, value);
      require<ConfigError>(number >= 0, "fit: parameter_group of ", name, " is ", number, ": must be >= 0");
      out.resize(std::max(out.size(), static_cast<std::size_t>(number) + 1));
      out[static_cast<std::size_t>(number)].push_back(value);
    }
    return out;
  }

  void prepare() {
    const FitOptions& options = job_.options;
    std::vector<at::Tensor> parameters;
    std::vector<std::vector<at::Tensor>> groups;
    if (options.parameter_group) groups = groups_of(model_.module());
    if (!options.parallel) {
      for (const NamedTensor& parameter : distinct_parameters(model_.module())) parameters.push_back(parameter.value);
    } else if (pipelined_) {
      PipelineOptions pipeline = options.parallel->config_pipeline;
      if (pipeline.microbatches < 1) pipeline.microbatches = ranks_;
      if (pipeline.shard && options.parameter_group) pipeline.shard->parameter_group = options.parameter_group;
      pipe_.emplace(mesh_, device_, model_.stages().ptr(), pipeline);
      parameters = pipe_->parameters();
      for (std::size_t number = 0; number < groups.size(); ++number)  // those of this rank, in as many as all have
        if (pipeline.shard)
          groups[number] = pipe_->parameters(static_cast<int>(number));
        else
          std::erase_if(groups[number], [&](const at::Tensor& x) {
            return std::ranges::none_of(parameters, [&](const at::Tensor& own) { return own.is_same(x); });
          });
    } else {
      const FsdpConfig& fsdp = options.parallel->config_fsdp;
      sharded_ = &model_.shard(group_, {.sharding = fsdp.sharding,
                                        .precision = fsdp.mixed_precision,
                                        .backward_prefetch = fsdp.backward_prefetch,
                                        .policy = fsdp.wrap_policy.value_or(wrap_never()),
                                        .parameter_group = options.parameter_group,
                                        .device = device_});
      parameters = sharded_->shards();
      for (std::size_t number = 0; number < groups.size(); ++number)
        groups[number] = sharded_->shards(static_cast<int>(number));
    }
    std::erase_if(parameters, [](const at::Tensor& x) { return !x.requires_grad(); });
    if (parameters.empty()) return;  // stages may be without any
    optimizer_ = options.parameter_group ? options.optimizer_of_groups(groups) : job_.optimizer(parameters);
    refuse_lbfgs();
    if (options.scheduler) scheduler_ = options.scheduler(*optimizer_);
  }

  /// Its steps follow from dot products of all gradients, and evaluate the loss several times.
  void refuse_lbfgs() const {
    if (dynamic_cast<const torch::optim::LBFGS*>(optimizer_.get()) == nullptr) return;
    const bool has_part = pipe_ || (sharded_ && !sharded_->is_replicated());
    if (has_part && ranks_ > 1)
      throw ConfigError(
          text("fit: torch::optim::LBFGS with ", str(*job_.options.parallel),
               ": its dot products would be of the gradients that a rank has, not of all, so that every ",
               "rank would take other steps\n  fix: torch::optim::AdamW; or data_parallel() and a loop of ",
               "your own, whose closure returns the mean of the losses of all ranks"));
    throw ConfigError(
        "fit: torch::optim::LBFGS evaluates the loss several times in a step, by a closure: fit() has none\n"
        "  fix: torch::optim::AdamW; or a loop of your own, on several ranks with data_parallel()");
  }

  void announce(const EpochOrder& order) const {
    std::ostream* log = job_.options.log;
    if (!log || mesh_.rank() != 0) return;
    *log << "batch size " << order.per_step;
    if (pipelined_) *log << ", in microbatches over " << ranks_ << " devices";
    if (sharded_) {
      *log << ": " << job_.options.batch_size << " on each of " << ranks_ << " devices";
      if (!job_.options.parallel->config_fsdp.wrap_policy &&
          job_.options.parallel->config_fsdp.sharding != Sharding::no_shard)
        *log << "; without a wrap policy the model is one unit, gathered as a whole";
    }
    *log << std::endl;
  }

  double train_epoch(const EpochOrder& order, int epoch) {
    model_.module().train();
    double sum = 0;
    for (std::int64_t step = 0; step < order.steps(); ++step) {
      const std::vector<std::int64_t> indices = order.step(epoch, step);
      const double loss = train(indices);
      sum += loss;
      ++steps_;
      if (job_.options.on_step && mesh_.rank() == 0)
        job_.options.on_step(steps_, loss / static_cast<double>(indices.size()));
      const std::int64_t every = job_.options.compare_replicas_every;
      if (sharded_ && every > 0 && steps_ % every == 0) compare_replicas(*sharded_, {.when = text("step ", steps_)});
    }
    if (scheduler_ && !job_.options.scheduler_by_step) scheduler_->step();
    return sum / static_cast<double>(order.samples);
  }

  FitEpoch facts_of(int epoch, double loss, const Tally* tally) const {
    FitEpoch out{.epoch = epoch, .train_loss = loss};
    if (tally) {
      out.validation_loss = tally->mean_loss();
      out.validation_accuracy = tally->accuracy();
    }
    if (optimizer_) out.learning_rate = optimizer_->param_groups()[0].options().get_lr();
    if (pipelined_) {  // a stage may have no parameters
      const at::Tensor own = at::full({1}, out.learning_rate, at::TensorOptions(at::kDouble).device(device_));
      out.learning_rate = group_.all_reduce(own, Reduce::max).wait().item<double>();
    }
    return out;
  }

  /// What rank 0 decides. Collective if there is a callback.
  bool goes_on(const FitEpoch& epoch) {
    if (job_.options.log && mesh_.rank() == 0) {
      *job_.options.log << "epoch " << epoch.epoch << ": loss " << epoch.train_loss;
      if (epoch.validation_loss) *job_.options.log << ", validation loss " << *epoch.validation_loss;
      *job_.options.log << std::endl;
    }
    if (!job_.options.on_epoch) return true;
    at::Tensor answer = at::ones({1}, at::TensorOptions(device_));
    if (mesh_.rank() == 0 && !job_.options.on_epoch(epoch)) answer.zero_();
    return group_.broadcast_(answer, 0).wait().item<float>() != 0;
  }

  CheckpointedModule checkpointed() {
    if (pipe_) return *pipe_;
    return sharded_ ? CheckpointedModule(*sharded_) : CheckpointedModule(model_.module(), group_);
  }

  void save(const std::vector<double>& losses) {
    const FitOptions& options = job_.options;
    if (options.checkpoints.empty()) return;
    std::ostringstream numbers, scale;
    for (const double loss : losses) numbers << std::hexfloat << loss << " ";
    scale << std::hexfloat << scaler_.state().scale << " " << scaler_.state().good_steps;
    const SavedCheckpoint saved = save_checkpoint(options.checkpoints, std::ssize(losses), checkpointed(),
                                                  {.optimizer = optimizer_.get(),
                                                   .scheduler = scheduler_.get(),
                                                   .random = options.mesh != nullptr,  // threads share them
                                                   .fields = {{kLosses, numbers.str()}, {kScale, scale.str()}},
                                                   .keep = options.checkpoint_keep});
    if (!saved.warning.empty() && options.log && mesh_.rank() == 0) *options.log << saved.warning << std::endl;
  }

  /// Nothing if there is no checkpoint.
  void load(std::vector<double>& losses) {
    const FitOptions& options = job_.options;
    if (options.checkpoints.empty()) return;
    std::string found;  // one rank looks: another one might see more
    const Failure failure = failure_of([&] {
      std::error_code error;
      if (mesh_.rank() == 0 && std::filesystem::is_directory(options.checkpoints, error) &&
          !checkpoint::checkpoints_in(options.checkpoints).empty())
        found = options.checkpoints.string();
    });
    if (agree_on(group_, device_, failure, found)[0].empty()) return;
    std::map<std::string, std::string> fields;
    const std::int64_t epochs = load_checkpoint(options.checkpoints, checkpointed(),
                                                {.optimizer = optimizer_.get(),
                                                 .scheduler = scheduler_.get(),
                                                 .random = options.mesh != nullptr,
                                                 .fields = &fields});
    std::istringstream numbers(fields[kLosses]), scale(fields[kScale]);
    for (std::string word; numbers >> word;) losses.push_back(std::strtod(word.c_str(), nullptr));
    require<CheckpointError>(std::ssize(losses) == epochs, options.checkpoints.string(), ": the checkpoint of step ",
                             epochs, " is not one of fit()\n  fix: another folder");
    std::string word;
    GradScaler::State state;
    scale >> word >> state.good_steps;
    state.scale = std::strtod(word.c_str(), nullptr);
    scaler_.set_state(state);
    if (options.log && mesh_.rank() == 0) *options.log << "goes on after epoch " << epochs << std::endl;
  }

  std::optional<AutocastScope> autocast() const {
    using Scope = std::optional<AutocastScope>;
    return job_.options.autocast ? Scope(std::in_place, device_.type(), *job_.options.autocast) : Scope();
  }

  /// The sum of the losses of all samples of the step, on every rank.
  double train(const std::vector<std::int64_t>& indices) {
    const TraceSpan span(tracer_, "step", "compute");
    const auto count = static_cast<double>(indices.size());
    if (optimizer_) optimizer_->zero_grad();
    double sum = 0;
    if (pipe_) {
      const Samples batch = moved(job_.train.get(indices), device_);
      const auto scope = autocast();
      const at::Tensor mean = pipe_->step(
          batch.inputs, batch.targets,
          [this](const at::Tensor& out, const at::Tensor& y) { return scaled(loss_of({out, {}}, y, job_.loss)); });
      sum = mean.item<double>() / scale() * count;
    } else {
      std::vector<std::int64_t> own = part_of_step(indices, group_.rank(), ranks_);
      // Every rank takes part: one without samples computes one that counts nothing.
      const double weight = static_cast<double>(own.size()) * ranks_ / count;
      set_batch_norm_counted(model_.module(), !own.empty());
      if (own.empty()) own.push_back(indices[0]);
      const Samples batch = moved(job_.train.get(own), device_);
      at::Tensor loss;
      {
        const TraceSpan forward(tracer_, "forward", "compute");
        const auto scope = autocast();
        loss = loss_of(model_.call(batch), batch.targets, job_.loss) * weight;
      }
      {
        const TraceSpan backward(tracer_, "backward", "compute");
        scaled(loss).backward();
      }
      const at::Tensor total = group_.all_reduce(loss.detach().to(at::kDouble).view({1})).wait();
      sum = total.item<double>() / ranks_ * count;
    }
    const TraceSpan update(tracer_, "optimizer", "compute");
    step_optimizer();
    return sum;
  }

  at::Tensor scaled(const at::Tensor& loss) const { return job_.options.grad_scaler ? scaler_.scale(loss) : loss; }
  double scale() const { return job_.options.grad_scaler ? scaler_.scale_value() : 1; }

  void step_optimizer() {
    bool finite = true;
    if (job_.options.grad_scaler) {
      // Every rank takes part, also one without parameters.
      torch::optim::Optimizer* optimizer = optimizer_.get();
      finite = optimizer ? scaler_.unscale(*optimizer, group_)
                         : group_.all_reduce(at::zeros({1}, at::TensorOptions(device_))).wait().item<float>() == 0;
      scaler_.update(finite);
    }
    if (job_.options.max_norm > 0 && (optimizer_ || pipe_)) clip();
    if (finite && optimizer_) optimizer_->step();
    if (finite && scheduler_ && job_.options.scheduler_by_step) scheduler_->step();
  }

  void clip() {
    const double max_norm = job_.options.max_norm;
    if (sharded_) {
      sharded_->clip_grad_norm(max_norm);
    } else if (pipe_) {
      pipe_->clip_grad_norm(max_norm);
    } else {
      std::vector<at::Tensor> gradients;
      for (const auto& parameters : optimizer_->param_groups())
        for (const at::Tensor& parameter : parameters.params())
          if (parameter.grad().defined()) gradients.push_back(parameter.grad());
      clip_gradients(gradients, gradients, max_norm, device_, {});
    }
  }

  Tally validate() {
    const TraceSpan span(tracer_, "validate", "compute");
    const at::NoGradGuard no_grad;
    set_batch_norm_counted(model_.module(), true);
    model_.module().eval();
    if (pipe_) pipe_->module().eval();
    const EpochOrder order{job_.validation.size(), job_.options.batch_size * (pipelined_ ? 1 : ranks_), false};
    Tally tally;
    for (std::int64_t step = 0; step < order.steps(); ++step) {
      const std::vector<std::int64_t> indices = order.step(0, step);
      const auto scope = autocast();
      if (pipe_) {
        const Samples batch = moved(job_.validation.get(indices), device_);
        const ModelOutput out{pipe_->forward(batch.inputs), {}};
        tally.add(out, batch, loss_of(out, batch.targets, job_.loss));
        continue;
      }
      std::vector<std::int64_t> own = part_of_step(indices, group_.rank(), ranks_);
      const bool counts = !own.empty();
      if (!counts) own.push_back(indices[0]);
      const Samples batch = moved(job_.validation.get(own), device_);
      const ModelOutput out = model_.call(batch);
      if (counts) tally.add(out, batch, loss_of(out, batch.targets, job_.loss));
    }
    if (!pipe_) tally.sum_over(group_, device_);  // all ranks of a pipeline have it
    if (pipe_) pipe_->module().train();
    return tally;
  }

  const FitJob& job_;
  const at::Device device_;
  FitModel& model_;
  const bool pipelined_;
  Mesh& mesh_;
  Group& group_;
  const int ranks_;
  Tracer tracer_;
  ShardedModule* sharded_ = nullptr;
  std::optional<Pipeline> pipe_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<torch::optim::LRScheduler> scheduler_;
  GradScaler scaler_;
  std::int64_t steps_ = 0;
};

}  // namespace

Axis axis_of(const FitOptions& options) {
  return options.parallel && options.parallel->p_type == ParallelismType::PIPELINE ? Axis::pp : Axis::dp;
}

Trained train_on_rank(Mesh& mesh, at::Device device, FitModel& model, const FitJob& job) {
  const struct EndOfSharding {
    FitModel& model;
    ~EndOfSharding() { model.end_sharding(); }
  } end{model};
  Trained out;
  FitRank rank(mesh, device, model, job);
  try {
    out.result = rank.run();
  } catch (...) {
    rank.give_back();
    throw;
  }
  for (const NamedTensor& item : rank.state()) out.state.push_back({item.name, item.value.detach().cpu().clone()});
  return out;
}

}  // namespace trireme
