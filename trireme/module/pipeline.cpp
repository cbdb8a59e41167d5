#include "trireme/module/pipeline.hpp"

#include <algorithm>
#include <iterator>

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/base/fnv.hpp"
#include "trireme/module/all_stages.hpp"
#include "trireme/module/earlier_gradients.hpp"
#include "trireme/module/pipeline_chunk.hpp"
#include "trireme/module/stage_builders.hpp"
#include "trireme/module/sync_batch_norm.hpp"
#include "trireme/parallel/pipeline/executor.hpp"
#include "trireme/parallel/tensor/gradients.hpp"
#include "trireme/schedule/generate.hpp"

namespace trireme {
namespace {

/// Part i of `count` things: the first parts have one more if they cannot be equal.
Range even_part(std::int64_t count, std::int64_t parts, std::int64_t i) {
  const auto begin = [&](std::int64_t k) { return count / parts * k + std::min(k, count % parts); };
  return {begin(i), begin(i + 1)};
}

std::vector<at::Tensor> trained_parameters(const torch::nn::Module& module) {
  return parameters_if(module, [](const std::string&, const at::Tensor&) { return true; });
}

}  // namespace

class Pipeline::Core {
 public:
  Core(Mesh& mesh, at::Device device, const std::vector<StageBuilder>& builders, const PipelineOptions& options)
      : mesh_(mesh), device_(device), options_(options), group_(mesh.group(Axis::pp)) {
    const schedule::ScheduleKind kind = schedule::parse_schedule_kind(options.schedule);
    using enum schedule::ScheduleKind;
    require<ConfigError>(kind == all_forward_all_backward || kind == one_f_one_b || kind == interleaved,
                         "pipeline: schedule ", options.schedule,
                         " splits backward, which modules of libtorch cannot\n  fix: afab, 1f1b or interleaved-1f1b");
    require<ConfigError>(options.microbatches > 0, "pipeline: ", options.microbatches, " microbatches: must be >= 1");
    const int parts = group_.size() * schedule::chunks_per_rank(kind, options.virtual_stages);
    const auto count = static_cast<std::int64_t>(builders.size());
    require<ConfigError>(count >= parts, "pipeline: ", count, " stages for ", group_.size(), " ranks",
                         parts > group_.size() ? text(" with ", parts / group_.size(), " parts each") : "",
                         ": every part needs at least one\n  fix: at most ", count, " ranks, or more stages");
    const schedule::Schedule layout = schedule::make_schedule(kind, group_.size(), 1, options.virtual_stages);
    for (int chunk = 0; chunk < parts; ++chunk) {
      const int owner = layout.rank_of_chunk[static_cast<std::size_t>(chunk)];
      const Range range = even_part(count, parts, chunk);
      if (owner != group_.rank()) continue;
      for (std::int64_t i = range.begin; i < range.end; ++i) build(chunk, static_cast<int>(i), builders);
    }
    loss_rank_ = layout.rank_of_chunk.back();
    parts_ = parts;
    shard_and_move();
    start_alike();
    for (const auto& [number, chunk] : chunks_)
      if (!chunk.sharded) set_batch_norm_group(*chunk.stages, &mesh_.token_group(), this);
  }
  ~Core() {
    for (const auto& [number, chunk] : chunks_)
      if (!chunk.sharded) clear_batch_norm_group(*chunk.stages, this);
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  at::Tensor step(const Tensors& x, const at::Tensor& target, const Loss& loss) {
    const std::int64_t samples = target.size(0);
    require<ConfigError>(samples > 0 && !x.empty() && x[0].size(0) == samples, "pipeline: a batch with ", samples,
                         " targets and ", x.empty() ? 0 : x[0].size(0), " samples");
    const int count = static_cast<int>(std::min<std::int64_t>(options_.microbatches, samples));
    const auto range = [&](int m) { return even_part(samples, count, m); };
    const auto forward = [&](int chunk, int m, const std::vector<Tensors>& inputs) -> ChunkOutput {
      const Tensors out = run(chunk, chunk == 0 ? part(x, range(m)) : inputs[0]);
      if (chunk + 1 < parts_) return std::vector<Tensors>{out};
      const at::Tensor its = target.narrow(0, range(m).begin, range(m).size()).to(device_);
      // The mean over the batch, of microbatches that may differ by one sample.
      return loss(out.at(0), its) * (static_cast<double>(range(m).size()) / static_cast<double>(samples));
    };
    check_usable();
    for (auto& [number, chunk] : chunks_) {
      check_known(chunk);
      chunk.forget_unreduced();  // of a step that threw
    }
    EarlierGradients earlier(trained_copies());
    const StepOutcome outcome =
        executor(count, true)
            .run({.step = ++step_,
                  .forward = forward,
                  .loss_gradient = [this] { return at::ones({}, at::TensorOptions(device_)); },
                  .before_backward = [this](int chunk, bool last) { before_backward(chunk, last); },
                  .shape_key = [&](int m) { return shape_key(x, range(m)); }});
    average_gradients();
    earlier.add_new_ones();
    at::Tensor total = at::zeros({1}, at::TensorOptions(at::kDouble).device(device_));
    if (group_.rank() == loss_rank_) total.add_(outcome.loss_sum);
    total = group_.broadcast_(total, loss_rank_).wait();
    return mesh_.token_group().all_reduce(total, Reduce::avg).wait()[0];
  }

  at::Tensor forward(const Tensors& x) {
    check_usable();
    const at::NoGradGuard no_grad;
    const std::int64_t samples = x.at(0).size(0);
    const int count = static_cast<int>(std::min<std::int64_t>(options_.microbatches, samples));
    require<ConfigError>(count > 0, "pipeline: a batch without samples");
    const auto range = [&](int m) { return even_part(samples, count, m); };
    std::vector<at::Tensor> results(static_cast<std::size_t>(count));
    const auto compute = [&](int chunk, int m, const std::vector<Tensors>& inputs) -> ChunkOutput {
      const Tensors out = run(chunk, chunk == 0 ? part(x, range(m)) : inputs[0]);
      if (chunk + 1 < parts_) return std::vector<Tensors>{out};
      results[static_cast<std::size_t>(m)] = out.at(0);
      return at::zeros({}, at::TensorOptions(device_));
    };
    executor(count, false).run({.step = step_, .forward = compute, .shape_key = [&](int m) {
                                  return shape_key(x, range(m));
                                }});
    const at::Tensor here = group_.rank() == loss_rank_ ? at::cat(results).cpu() : at::Tensor();
    return broadcast_value(loss_rank_, here, group_, device_).toTensor().to(device_);
  }

  double clip_grad_norm(double max_norm) const {
    check_usable();
    const ParamMesh mesh(mesh_);
    std::vector<KeptTensor> kept;
    std::vector<std::vector<Param>> params;  // that `kept` refers to
    for (const auto& [number, chunk] : chunks_) {
      if (!chunk.sharded) params.push_back(distinct_params(*chunk.stages, &mesh));
      std::ranges::move(chunk.sharded ? chunk.sharded->kept() : whole_tensors(params.back(), &mesh, group_),
                        std::back_inserter(kept));
    }
    std::vector<at::Tensor> gradients;
    for (const KeptTensor& one : kept) {
      if (!one.tensor.grad().defined()) continue;
      require<ConfigError>(!one.tensor.grad().is_sparse(), "pipeline: clip_grad_norm() with a sparse gradient\n",
                           "  fix: sparse(false) for the embedding");
      gradients.push_back(one.tensor.grad());
    }
    return clip_gradients(gradients, counted_gradients(kept, &mesh), max_norm, device_,
                          {&mesh_.token_group(), &mesh_.group(Axis::tp), &group_});
  }

  void for_each_whole(const VisitTensor& f) const {
    check_usable();
    for_each_of_all_stages(group_, device_, [this](const VisitTensor& own) { for_each_own(own); }, f);
  }

  std::vector<Part> parts() const {
    std::vector<Part> out;
    for (const auto& [number, chunk] : chunks_) out.push_back({chunk.stages.get(), chunk.sharded.get()});
    return out;
  }
  std::vector<at::Tensor> parameters(std::optional<int> parameter_group) const {
    require<ConfigError>(options_.shard || !parameter_group,
                         "pipeline: parameter groups are those of PipelineOptions::",
                         "shard\n  fix: parameters_if(pipe.module(), ...) for a pipeline that is not sharded");
    std::vector<at::Tensor> out;
    for (const auto& [number, chunk] : chunks_) {
      if (chunk.sharded)
        std::ranges::move(chunk.sharded->shards_of(parameter_group), std::back_inserter(out));
      else if (!parameter_group)  // a part that is not sharded has no trained parameters
        for (const NamedTensor& parameter : distinct_parameters(*chunk.stages)) out.push_back(parameter.value);
    }
    return out;
  }
  Mesh& mesh() const {
    check_usable();
    return mesh_;
  }
  void release() {
    check_usable();
    for (auto& [number, chunk] : chunks_)
      if (chunk.sharded) chunk.sharded->release();
    released_ = options_.shard.has_value();
  }
  torch::nn::Module module_;
  std::vector<int> stages_;

 private:
  void build(int chunk, int stage, const std::vector<StageBuilder>& builders) {
    const Stage built = build_stage(builders, stage);
    module_.register_module(std::to_string(stage), built.module());
    stages_.push_back(stage);
    chunks_[chunk].stages->add(stage, built);
  }

  /// On all ranks alike, before any of them waits for another.
  void check_usable() const {
    context_.check();
    require<ConfigError>(!released_, "pipeline: it was released\n  fix: call the stages themselves, in module()");
  }

  /// Parts that are not sharded are combined as they are at each step; a parameter that is added later has values that
  /// nobody has compared.
  static void check_known(const OwnChunk& chunk) {
    if (chunk.sharded) return;
    for (const NamedTensor& parameter : distinct_parameters(*chunk.stages))
      require<ConfigError>(chunk.known.contains(parameter.value.unsafeGetTensorImpl()), "pipeline: ", parameter.name,
                           " was added after the pipeline was made: its values may differ between the ranks\n",
                           "  fix: add parameters first");
  }

  /// Sharding moves a part unit by unit: it need not fit as a whole.
  void shard_and_move() {
    FullyShardOptions options = options_.shard.value_or(FullyShardOptions{});
    if (!options.device) options.device = device_;
    for (auto& [number, chunk] : chunks_)
      if (options_.shard && !trained_parameters(*chunk.stages).empty()) {
        chunk.sharded = std::make_unique<FullyShard<StageChain>>(chunk.stages, mesh_, options);
      } else {
        if (mesh_.token_group().size() > 1)
          require_dense_gradients(*chunk.stages, "pipeline", "sparse(false) for the embedding");
        require_same_module(*chunk.stages, mesh_.token_group(), device_, "pipeline");
        chunk.stages->to(device_);
        for (const NamedTensor& parameter : distinct_parameters(*chunk.stages))
          chunk.known.insert(parameter.value.unsafeGetTensorImpl());
      }
  }

  /// The trained parameters of the parts that are not sharded.
  std::vector<at::Tensor> trained_copies() const {
    std::vector<at::Tensor> out;
    for (const auto& [number, chunk] : chunks_)
      if (!chunk.sharded) std::ranges::move(trained_parameters(*chunk.stages), std::back_inserter(out));
    return out;
  }

  /// f(ranks, params) for the parameters of the parts that are not sharded, by the ranks that have the same: in the
  /// same order on all of them.
  template <class F>
  void for_each_group(const F& f) const {
    const ParamMesh mesh(mesh_);
    for (const View view : {View::dense, View::expert}) {
      std::vector<Param> params;
      for (const auto& [number, chunk] : chunks_)
        if (!chunk.sharded) std::ranges::move(distinct_params(*chunk.stages, &mesh), std::back_inserter(params));
      std::erase_if(params, [view](const Param& param) { return param.spec.placement.view != view; });
      if (!params.empty()) f(mesh.sum_group(params[0].spec), params);
    }
  }

  std::vector<at::Tensor> buffers_of_copies() const {
    std::vector<at::Tensor> out;
    for (const auto& [number, chunk] : chunks_)
      if (!chunk.sharded)
        for (const at::Tensor& buffer : chunk.stages->buffers()) out.push_back(buffer);
    return out;
  }

  /// Also within a tensor-parallel group: a module that is no layer of ours may have drawn its own values.
  void start_alike() const {
    Group& tensor_parallel = mesh_.group(Axis::tp);
    for_each_group([&](Group& same, const std::vector<Param>& params) {
      std::vector<at::Tensor> values, full;
      for (const Param& param : params) {
        values.push_back(param.value);
        if (has_full_value(param) && param.spec.placement.view == View::dense) full.push_back(param.value);
      }
      broadcast_all(values, same);
      broadcast_all(full, tensor_parallel);
    });
    for (Group* group : {&mesh_.token_group(), &tensor_parallel}) broadcast_all(buffers_of_copies(), *group);
  }

  Tensors run(int chunk, const Tensors& x) const { return chunks_.at(chunk)(x); }

  void before_backward(int number, bool last) {
    OwnChunk& chunk = chunks_.at(number);
    if (!chunk.sharded) return;
    chunk.no_sync.reset();
    if (!last) chunk.no_sync.emplace(*chunk.sharded);
  }

  /// Of this rank's stages.
  void for_each_own(const VisitTensor& f) const {
    for (const auto& [number, chunk] : chunks_) {
      if (chunk.sharded) {
        chunk.sharded->for_each_whole(f);
        continue;
      }
      const ParamMesh mesh(mesh_);
      for (const Param& param : distinct_params(*chunk.stages, &mesh)) f(param.name, full_value(param, mesh));
      for (const auto& buffer : chunk.stages->named_buffers()) f(buffer.key(), buffer.value());
    }
  }

  Tensors part(const Tensors& x, Range range) const {
    Tensors out;
    for (const at::Tensor& whole : x) out.push_back(whole.narrow(0, range.begin, range.size()).to(device_));
    return out;
  }

  /// By number of microbatches. Collective the first time.
  Executor& executor(int microbatches, bool backward) {
    std::unique_ptr<Executor>& known = executors_[{microbatches, backward}];
    if (!known) {
      schedule::Schedule schedule = schedule::make_schedule(schedule::parse_schedule_kind(options_.schedule),
                                                            group_.size(), microbatches, options_.virtual_stages);
      if (!backward) schedule = schedule::forward_only(schedule, microbatches);
      known = std::make_unique<Executor>(std::move(schedule), mesh_, device_);
    }
    return *known;
  }

  /// Over the ranks that see other samples, of the parts that are not sharded.
  void average_gradients() const {
    for_each_group([this](Group& same, const std::vector<Param>& params) {
      sum_partial_gradients(params, mesh_);
      std::vector<at::Tensor> gradients;
      for (const Param& param : params) {
        at::Tensor value = param.value;
        if (!value.requires_grad()) continue;
        if (!value.grad().defined()) {
          if (same.size() == 1) continue;
          value.mutable_grad() = at::zeros_like(value);
        }
        gradients.push_back(value.grad());
      }
      average_all(gradients, same);
      // An expert has gradients of the samples of all ranks, not only of those that have the same expert.
      const int tokens = mesh_.token_group().size();
      if (same.size() != tokens)
        for (const at::Tensor& gradient : gradients) gradient.mul_(static_cast<double>(same.size()) / tokens);
    });
    sync_buffers(buffers_of_copies(), BufferSync::broadcast, mesh_.token_group());
  }

  /// Microbatches with the same key have the same shapes between all stages.
  static std::int64_t shape_key(const Tensors& x, Range range) {
    std::string sizes = text(range.size());
    for (const at::Tensor& tensor : x) sizes += text(" ", tensor.sizes().slice(1), " ", tensor.scalar_type());
    return static_cast<std::int64_t>(fnv1a(sizes) >> 1);
  }

  Mesh& mesh_;
  const ContextGuard context_{"pipeline"};
  const at::Device device_;
  const PipelineOptions options_;
  Group& group_;
  std::map<int, OwnChunk> chunks_;  // of this rank, by number
  int loss_rank_ = 0, parts_ = 1;
  std::map<std::pair<int, bool>, std::unique_ptr<Executor>> executors_;
  std::int64_t step_ = 0;
  bool released_ = false;
};

Pipeline::Pipeline(Mesh& mesh, at::Device device, std::vector<StageBuilder> stages, const PipelineOptions& options)
    : core_(std::make_unique<Core>(mesh, device, stages, options)) {}
Pipeline::Pipeline(Mesh& mesh, at::Device device, const std::shared_ptr<torch::nn::SequentialImpl>& stages,
                   const PipelineOptions& options)
    : Pipeline(mesh, device, builders_of(stages), options) {}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;

at::Tensor Pipeline::step(const Tensors& x, const at::Tensor& target, const Loss& loss) {
  return core_->step(x, target, loss);
}
at::Tensor Pipeline::forward(const Tensors& x) { return core_->forward(x); }
double Pipeline::clip_grad_norm(double max_norm) { return core_->clip_grad_norm(max_norm); }
std::vector<at::Tensor> Pipeline::parameters() const { return core_->parameters(std::nullopt); }
std::vector<at::Tensor> Pipeline::parameters(int parameter_group) const { return core_->parameters(parameter_group); }
torch::nn::Module& Pipeline::module() const { return core_->module_; }
const std::vector<int>& Pipeline::stages() const { return core_->stages_; }
void Pipeline::for_each_whole(const std::function<void(const std::string&, const at::Tensor&)>& f) const {
  core_->for_each_whole(f);
}
void Pipeline::release() { core_->release(); }
std::vector<NamedTensor> Pipeline::state() const {
  std::vector<NamedTensor> out;
  for_each_whole([&out](const std::string& name, const at::Tensor& value) {
    out.push_back({name, value.to(at::kCPU, value.scalar_type(), false, /*copy=*/true)});
  });
  return out;
}
Mesh& Pipeline::mesh() const { return core_->mesh(); }
std::vector<Pipeline::Part> Pipeline::parts() const { return core_->parts(); }

}  // namespace trireme
