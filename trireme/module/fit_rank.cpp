#include "trireme/module/fit_rank.hpp"

#include <chrono>
#include <cmath>
#include <limits>
#include <ostream>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/base/trace.hpp"
#include "trireme/data/sampling/permutation.hpp"
#include "trireme/module/amp.hpp"

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
    if (!pipelined_) model_.module().to(device_);  // a pipeline moves the stages of its rank
    prepare();
  }

  FitResult run() {
    FitResult result;
    const auto begin = std::chrono::steady_clock::now();
    const EpochOrder order{job_.train.size(), job_.options.batch_size * (pipelined_ ? 1 : ranks_), job_.options.shuffle,
                           job_.options.seed};
    announce(order);
    for (int epoch = 0; epoch < job_.options.epochs; ++epoch) {
      model_.module().train();
      double sum = 0;
      for (std::int64_t step = 0; step < order.steps(); ++step) sum += train(order.step(epoch, step));
      result.train_losses.push_back(sum / static_cast<double>(order.samples));
      if (job_.options.log && mesh_.rank() == 0)
        *job_.options.log << "epoch " << epoch + 1 << ": loss " << result.train_losses.back() << std::endl;
    }
    const Tally tally = validate();
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

 private:
  void prepare() {
    const FitOptions& options = job_.options;
    std::vector<at::Tensor> parameters;
    if (!options.parallel) {
      for (const NamedTensor& parameter : distinct_parameters(model_.module())) parameters.push_back(parameter.value);
    } else if (pipelined_) {
      PipelineOptions pipeline = options.parallel->config_pipeline;
      if (pipeline.microbatches < 1) pipeline.microbatches = ranks_;
      pipe_.emplace(mesh_, device_, model_.stages().ptr(), pipeline);
      parameters = pipe_->parameters();
    } else {
      const FsdpConfig& fsdp = options.parallel->config_fsdp;
      sharded_ = &model_.shard(group_, {.sharding = fsdp.sharding_strategy,
                                        .precision = fsdp.mixed_precision,
                                        .backward_prefetch = fsdp.backward_prefetch,
                                        .policy = fsdp.wrap_policy.value_or(wrap_never())});
      parameters = sharded_->shards();
    }
    std::erase_if(parameters, [](const at::Tensor& x) { return !x.requires_grad(); });
    if (!parameters.empty()) optimizer_ = job_.optimizer(parameters);  // stages may be without any
  }

  void announce(const EpochOrder& order) const {
    std::ostream* log = job_.options.log;
    if (!log || mesh_.rank() != 0) return;
    *log << "batch size " << order.per_step;
    if (pipelined_) *log << ", in microbatches over " << ranks_ << " devices";
    if (sharded_) {
      *log << ": " << job_.options.batch_size << " on each of " << ranks_ << " devices";
      if (!job_.options.parallel->config_fsdp.wrap_policy &&
          job_.options.parallel->config_fsdp.sharding_strategy != Sharding::no_shard)
        *log << "; without a wrap policy the model is one unit, gathered as a whole";
    }
    *log << std::endl;
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
    if (job_.options.max_norm > 0) clip();
    if (finite && optimizer_) optimizer_->step();
  }

  void clip() {
    if (sharded_) {
      sharded_->clip_grad_norm(job_.options.max_norm);
      return;
    }
    const at::NoGradGuard no_grad;
    at::Tensor squares = at::zeros({1}, at::TensorOptions(at::kDouble).device(device_));
    const auto for_gradients = [&](const auto& f) {
      if (!optimizer_) return;
      for (const auto& parameters : optimizer_->param_groups())
        for (const at::Tensor& parameter : parameters.params())
          if (parameter.grad().defined()) f(parameter.grad());
    };
    for_gradients([&](const at::Tensor& g) { squares.add_(g.to(at::kDouble).square().sum()); });
    if (pipe_) squares = group_.all_reduce(squares).wait();
    const double norm = std::sqrt(squares.item<double>());
    if (norm > job_.options.max_norm) for_gradients([&](const at::Tensor& g) { g.mul_(job_.options.max_norm / norm); });
  }

  Tally validate() {
    const TraceSpan span(tracer_, "validate", "compute");
    const at::NoGradGuard no_grad;
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
  GradScaler scaler_;
};

}  // namespace

Axis axis_of(const FitOptions& options) {
  return options.parallel && options.parallel->p_type == ParallelismType::PIPELINE ? Axis::pp : Axis::dp;
}

Trained train_on_rank(Mesh& mesh, at::Device device, FitModel& model, const FitJob& job) {
  Trained out;
  {
    FitRank rank(mesh, device, model, job);
    out.result = rank.run();
    for (const NamedTensor& item : rank.state()) out.state.push_back({item.name, item.value.detach().cpu().clone()});
  }
  model.end_sharding();
  return out;
}

}  // namespace trireme
