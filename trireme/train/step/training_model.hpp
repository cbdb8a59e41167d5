#pragma once
// The model of a run on its mesh, with initialized or loaded weights, and the executors of its steps. With pipelines a
// rank holds only its own chunks.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/model/decoder.hpp"
#include "trireme/parallel/pipeline/executor.hpp"
#include "trireme/parallel/zero/zero.hpp"
#include "trireme/train/step/batches.hpp"
#include "trireme/train/step/microbatch_graphs.hpp"
#include "trireme/train/step/non_finite.hpp"
#include "trireme/train/trace/unit_trace.hpp"

namespace trireme {

class Fp8History;

/// A step's forwards and backwards.
struct StepRun {
  std::int64_t step = 0;
  const std::vector<Microbatch>& microbatches;
  std::function<at::Tensor()> loss_gradient;  // StepWork::loss_gradient
  // Of auxiliary losses, as in ForwardContext:
  double auxiliary_factor = 0;
  std::function<void(const at::Tensor& sum)> auxiliary_loss = {};
  StepProbes probes = {};
  bool uses_graphs = true;                    // if the model has them, and nothing is probed
  std::vector<TensorShape> edge_shapes = {};  // StepWork::edge_shapes
};

class TrainingModel {
 public:
  /// Collective. `config` has resolved dtypes; notes about the loaded weights are added to `warnings`. `resumes`: a
  /// checkpoint will set the weights, which are zero until then. `forward_only`: only evaluate() will be called, and
  /// there is no memory for gradients, master weights and states.
  TrainingModel(const Config& config, Mesh& mesh, at::Device device, int microbatches, bool resumes,
                std::vector<std::string>& warnings, bool forward_only = false);

  Zero& zero() { return *zero_; }
  UnitTrace& unit_trace() { return unit_trace_; }

  /// Forward and backward of all microbatches: for training, and for whoever looks at a step. The gradients are in
  /// zero(), and their reduction has started.
  StepOutcome run_step(const StepRun& run);
  /// CUDA graphs of microbatches; null: not used.
  MicrobatchGraphs* graphs() { return graphs_.get(); }
  /// Scales in fp8 that follow from past steps; null: there are none.
  Fp8History* fp8_history() { return fp8_history_.get(); }
  /// After the first step: measures the algorithms of its matrix products (cuda.tune_matmul).
  void tune_products();
  /// At the end of a step: the selection biases of routers follow its load, unless it was not applied. Collective.
  void update_routers(bool applied);
  /// Whether it does anything.
  bool has_biased_routers() const { return router_bias_rate_ > 0; }
  /// The sum of the losses of `count` batches, on the ranks that compute them; 0-dim, f64, on the device.
  at::Tensor evaluate(std::int64_t count, const std::function<Microbatch(std::int64_t batch)>& batch);

 private:
  ChunkOutput forward(int chunk, const Microbatch& microbatch, const std::vector<Tensors>& inputs);
  Executor& evaluator(int batches);

  const ParallelismConfig parallelism_;
  Mesh& mesh_;
  const at::Device device_;
  const bool tunes_products_;
  CrossEntropyOptions loss_options_;
  std::vector<std::shared_ptr<Decoder>> decoders_;  // of the chunks of this rank
  double router_bias_rate_ = 0;
  std::vector<std::shared_ptr<Router>> biased_routers_;  // those with a selection bias
  std::shared_ptr<Fp8History> fp8_history_;              // null: scales do not depend on past steps
  std::unique_ptr<Zero> zero_;
  UnitTrace unit_trace_;  // between the decoders and the hooks of `zero_`
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<MicrobatchGraphs> graphs_;
  std::map<int, std::unique_ptr<Executor>> evaluators_;  // by number of batches: made at first use
};

}  // namespace trireme
