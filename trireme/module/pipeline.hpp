#pragma once
// A pipeline of any torch::nn::Modules: each rank has some of them, and microbatches flow through all.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/modules/container/sequential.h>

#include "trireme/comm/mesh.hpp"
#include "trireme/module/fully_shard.hpp"
#include "trireme/parallel/pipeline/tensor_shape.hpp"

namespace trireme {

/// A module of a pipeline. Its forward takes up to four tensors, those that the stage before returns, and returns a
/// tensor, or several in a tuple or a vector.
class Stage {
 public:
  template <class M>
    requires std::is_base_of_v<torch::nn::Module, M>
  Stage(std::shared_ptr<M> module) : module_(module) {
    call_ = [it = std::move(module)](const Tensors& x) -> Tensors {
      const auto apply = [&](const auto&... xs) {
        auto result = it->forward(xs...);
        Tensors out;
        static_cast<void>(for_each_tensor(result, [&out](const at::Tensor& y) { out.push_back(y); }));
        return out;
      };
      using T = const at::Tensor&;
      if constexpr (requires(T a) { it->forward(a); })
        if (x.size() == 1) return apply(x[0]);
      if constexpr (requires(T a, T b) { it->forward(a, b); })
        if (x.size() == 2) return apply(x[0], x[1]);
      if constexpr (requires(T a, T b, T c) { it->forward(a, b, c); })
        if (x.size() == 3) return apply(x[0], x[1], x[2]);
      if constexpr (requires(T a, T b, T c, T d) { it->forward(a, b, c, d); })
        if (x.size() == 4) return apply(x[0], x[1], x[2], x[3]);
      throw_wrong_arguments(*it, x.size());
    };
  }
  template <class M>
  Stage(const torch::nn::ModuleHolder<M>& module) : Stage(module.ptr()) {}
  /// A module that maps one tensor to one tensor.
  Stage(const torch::nn::AnyModule& module);

  Tensors operator()(const Tensors& x) const { return call_(x); }
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }

 private:
  [[noreturn]] static void throw_wrong_arguments(const torch::nn::Module& module, std::size_t count);

  std::shared_ptr<torch::nn::Module> module_;
  std::function<Tensors(const Tensors&)> call_;
};
using StageBuilder = std::function<Stage()>;

struct PipelineOptions {
  std::string schedule = "1f1b";  // or afab, interleaved-1f1b
  int microbatches = 4;           // of a batch; as many as it has samples if those are fewer
  int virtual_stages = 1;         // interleaved-1f1b: parts of the model per rank
  /// Shards the stages over dp x cp, as fully_shard() does: each stage that the policy chooses is a unit. Gradients are
  /// reduced in the last microbatch of a step, and whole on each rank until then. None: every rank keeps its stages.
  std::optional<FullyShardOptions> shard = std::nullopt;
};

/// Stages over the pp axis of a mesh, and copies of the pipeline over dp and cp, or shards of it. Stages may have
/// tensor-parallel layers and experts (Layer); the ranks of a tensor-parallel group get the same samples.
///
///   Pipeline pipe(context.mesh(), context.device(), {[] { return Embed(512, 64); }, [] { return Head(64, 512); }});
///   torch::optim::AdamW optimizer(pipe.parameters(), 1e-3);
///   ...
///   optimizer.zero_grad();
///   const at::Tensor loss = pipe.step({x}, y, [](const at::Tensor& out, const at::Tensor& target) { ... });
///   optimizer.step();
///
/// Consecutive stages share a rank if there are more than ranks. Each builder is called on the rank of its stage alone,
/// with a random seed that depends on its number only. Batch norms normalise by the samples of a microbatch, and
/// SyncBatchNorms by those that all ranks of dp x cp have of it.
class Pipeline {
 public:
  /// The mean over the samples of a microbatch: of what the last stage returns, and of its part of the target.
  using Loss = std::function<at::Tensor(const at::Tensor& out, const at::Tensor& target)>;

  /// Collective. ConfigError for fewer stages than parts, or a schedule that splits backward.
  Pipeline(Mesh& mesh, at::Device device, std::vector<StageBuilder> stages, const PipelineOptions& options = {});
  /// The children of a Sequential, which every rank has: Pipeline(mesh, device, net.ptr()).
  Pipeline(Mesh& mesh, at::Device device, const std::shared_ptr<torch::nn::SequentialImpl>& stages,
           const PipelineOptions& options = {});
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) = delete;

  /// Forward and backward of a batch, which all ranks of the pipeline have: its microbatches are parts of dim 0. Adds
  /// the gradients of the mean loss, also over dp, to those of the parameters, and returns that loss on every rank.
  at::Tensor step(const Tensors& x, const at::Tensor& target, const Loss& loss);
  /// What the last stage returns, on every rank of the pipeline. Without gradients.
  at::Tensor forward(const Tensors& x);

  /// The norm of the gradients of all stages, which are scaled if it exceeds max_norm: torch's clip_grad_norm_ sees the
  /// stages of this rank only. Collective.
  double clip_grad_norm(double max_norm);

  /// For an optimizer: of the stages of this rank, or with PipelineOptions::shard the flat shards of them.
  std::vector<at::Tensor> parameters() const;
  /// Those of one group (FullyShardOptions::parameter_group); none if this rank has none of it.
  std::vector<at::Tensor> parameters(int parameter_group) const;
  torch::nn::Module& module() const;
  /// The stages of this rank, by number.
  const std::vector<int>& stages() const;
  /// With PipelineOptions::shard: gives the stages of this rank back with all their values, as modules of their own.
  /// The pipeline cannot be used afterwards. Collective.
  void release();
  /// Parameters and buffers of all stages, on the CPU of every rank: "2.weight" belongs to stage 2. Collective.
  std::vector<NamedTensor> state() const;
  /// f(name, value) for each of them, one in memory at a time. Collective.
  void for_each_whole(const std::function<void(const std::string& name, const at::Tensor& value)>& f) const;

  Mesh& mesh() const;
  /// What this rank has of a part of the model. `sharded`: nullptr without PipelineOptions::shard, and if nothing in it
  /// is trained.
  struct Part {
    const torch::nn::Module* module;
    const ShardedModule* sharded;
  };
  std::vector<Part> parts() const;

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace trireme
