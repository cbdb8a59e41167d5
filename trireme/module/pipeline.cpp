#include "trireme/module/pipeline.hpp"

#include <algorithm>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Dict.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include "trireme/base/error.hpp"
#include "trireme/base/fnv.hpp"
#include "trireme/parallel/pipeline/executor.hpp"
#include "trireme/schedule/generate.hpp"

namespace trireme {
namespace {

/// Part i of `count` things: the first parts have one more if they cannot be equal.
Range even_part(std::int64_t count, std::int64_t parts, std::int64_t i) {
  const auto begin = [&](std::int64_t k) { return count / parts * k + std::min(k, count % parts); };
  return {begin(i), begin(i + 1)};
}

/// Tensors, lists and dictionaries of them from one rank to all.
c10::IValue broadcast_from(int root, const c10::IValue& here, Group& group, at::Device device) {
  if (group.size() == 1) return here;
  std::vector<char> bytes;
  if (group.rank() == root) bytes = torch::jit::pickle_save(here);
  const at::Tensor size = at::tensor({static_cast<std::int64_t>(bytes.size())}).to(device);
  bytes.resize(static_cast<std::size_t>(group.broadcast_(size, root).wait().item<std::int64_t>()));
  const at::Tensor host = at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::kByte);
  host.copy_(group.broadcast_(host.to(device, at::kByte, false, /*copy=*/true), root).wait());
  return torch::jit::pickle_load(bytes);
}

/// Random numbers of a builder depend on the number of its stage alone.
class StageSeed {
 public:
  explicit StageSeed(int stage) : lock_(mutex()), generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard<std::mutex> inner(generator_.mutex());
    before_ = generator_.get_state();
    generator_.set_current_seed(generator_.current_seed() + 1000003U * static_cast<std::uint64_t>(stage + 1));
  }
  ~StageSeed() {
    const std::lock_guard<std::mutex> inner(generator_.mutex());
    generator_.set_state(before_);
  }
  StageSeed(const StageSeed&) = delete;
  StageSeed& operator=(const StageSeed&) = delete;

 private:
  static std::mutex& mutex() {  // ranks may be threads
    static std::mutex it;
    return it;
  }
  const std::lock_guard<std::mutex> lock_;
  at::Generator generator_;
  at::Tensor before_;
};

/// ConfigError if two children share a parameter: they may be on two ranks, where nobody would add up its gradients.
void require_no_ties(const torch::nn::SequentialImpl& stages) {
  std::map<const c10::TensorImpl*, std::size_t> seen;
  std::size_t number = 0;
  for (const auto& child : stages.children()) {
    for (const at::Tensor& parameter : child->parameters()) {
      const auto [place, is_new] = seen.emplace(parameter.unsafeGetTensorImpl(), number);
      require<ConfigError>(is_new || place->second == number, "pipeline: stages ", place->second, " and ", number,
                           " share a parameter\n  fix: a pipeline needs stages without shared parameters");
    }
    ++number;
  }
}

std::vector<StageBuilder> builders_of(const std::shared_ptr<torch::nn::SequentialImpl>& stages) {
  require_no_ties(*stages);
  std::vector<StageBuilder> out;
  for (const torch::nn::AnyModule& child : *stages) out.emplace_back([child] { return Stage(child); });
  return out;
}

}  // namespace

Stage::Stage(const torch::nn::AnyModule& module) : module_(module.ptr()) {
  call_ = [any = module](const Tensors& x) mutable -> Tensors {
    if (x.size() != 1) throw_wrong_arguments(*any.ptr(), x.size());
    return {any.forward<at::Tensor>(x[0])};
  };
}

void Stage::throw_wrong_arguments(const torch::nn::Module& module, std::size_t count) {
  throw ConfigError(text("pipeline: a stage gets ", count, " tensors, but the forward of ", module.name(),
                         " does not take as many\n  fix: take as many as the stage before returns, up to 4"));
}

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
      for (std::int64_t i = range.begin; i < range.end; ++i) owner_.push_back(owner);
      if (owner != group_.rank()) continue;
      for (std::int64_t i = range.begin; i < range.end; ++i) build(chunk, static_cast<int>(i), builders);
    }
    loss_rank_ = layout.rank_of_chunk.back();
    parts_ = parts;
    std::vector<at::Tensor> all;  // copies over dp begin alike
    for (const at::Tensor& parameter : module_.parameters()) all.push_back(parameter);
    for (const at::Tensor& buffer : module_.buffers()) all.push_back(buffer);
    broadcast_all(all, mesh.group(Axis::dp));
  }

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
    const StepOutcome outcome = executor(count, true)
                                    .run({.step = ++step_,
                                          .forward = forward,
                                          .loss_gradient = [this] { return at::ones({}, at::TensorOptions(device_)); },
                                          .shape_key = [&](int m) { return shape_key(x, range(m)); }});
    Group& dp = mesh_.group(Axis::dp);
    average_gradients(dp);
    at::Tensor total = at::zeros({1}, at::TensorOptions(at::kDouble).device(device_));
    if (group_.rank() == loss_rank_) total.add_(outcome.loss_sum);
    total = group_.broadcast_(total, loss_rank_).wait();
    return dp.all_reduce(total, Reduce::avg).wait()[0];
  }

  at::Tensor forward(const Tensors& x) {
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
    return broadcast_from(loss_rank_, here, group_, device_).toTensor().to(device_);
  }

  double clip_grad_norm(double max_norm) const {
    std::vector<at::Tensor> gradients;
    for (const NamedTensor& parameter : distinct_parameters(module_))
      if (parameter.value.grad().defined()) gradients.push_back(parameter.value.grad());
    return clip_gradients(gradients, max_norm, device_, &group_);
  }

  std::vector<NamedTensor> state() const {
    std::vector<NamedTensor> out;
    for (std::size_t stage = 0; stage < owner_.size(); ++stage) {
      c10::Dict<std::string, at::Tensor> own;
      if (owner_[stage] == group_.rank()) {
        const auto& module = *module_.named_children()[std::to_string(stage)];
        for (const auto& list : {module.named_parameters(), module.named_buffers()})
          for (const auto& item : list) own.insert(text(stage, ".", item.key()), item.value().detach().cpu().clone());
      }
      for (const auto& item : broadcast_from(owner_[stage], own, group_, device_).toGenericDict())
        out.push_back({item.key().toStringRef(), item.value().toTensor()});
    }
    return out;
  }

  torch::nn::Module module_;
  std::vector<int> stages_;

 private:
  void build(int chunk, int stage, const std::vector<StageBuilder>& builders) {
    const StageSeed seed(stage);
    const Stage built = builders[static_cast<std::size_t>(stage)]();
    built.module()->to(device_);
    module_.register_module(std::to_string(stage), built.module());
    stages_.push_back(stage);
    of_chunk_[chunk].push_back(built);
  }

  Tensors run(int chunk, Tensors x) const {
    for (const Stage& stage : of_chunk_.at(chunk)) x = stage(x);
    return x;
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

  void average_gradients(Group& dp) const {
    if (dp.size() == 1) return;
    std::vector<at::Tensor> gradients;
    for (const NamedTensor& named : distinct_parameters(module_)) {
      at::Tensor parameter = named.value;
      if (!parameter.requires_grad()) continue;
      if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
      gradients.push_back(parameter.grad());
    }
    average_all(gradients, dp);
    sync_buffers(module_.buffers(), BufferSync::broadcast, dp);
  }

  /// Microbatches with the same key have the same shapes between all stages.
  static std::int64_t shape_key(const Tensors& x, Range range) {
    std::string sizes = text(range.size());
    for (const at::Tensor& tensor : x) sizes += text(" ", tensor.sizes().slice(1), " ", tensor.scalar_type());
    return static_cast<std::int64_t>(fnv1a(sizes) >> 1);
  }

  Mesh& mesh_;
  const at::Device device_;
  const PipelineOptions options_;
  Group& group_;
  std::map<int, std::vector<Stage>> of_chunk_;  // of this rank
  std::vector<int> owner_;                      // by stage
  int loss_rank_ = 0, parts_ = 1;
  std::map<std::pair<int, bool>, std::unique_ptr<Executor>> executors_;
  std::int64_t step_ = 0;
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
std::vector<at::Tensor> Pipeline::parameters() const {
  std::vector<at::Tensor> out;
  for (const NamedTensor& parameter : distinct_parameters(core_->module_)) out.push_back(parameter.value);
  return out;
}
torch::nn::Module& Pipeline::module() const { return core_->module_; }
const std::vector<int>& Pipeline::stages() const { return core_->stages_; }
std::vector<NamedTensor> Pipeline::state() const { return core_->state(); }

}  // namespace trireme
