#pragma once
// Trains models of blocks (pipeline_block.hpp): microbatches flow through the pipeline, by one of two schedules.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/parallel/pipeline/block_recording.hpp"
#include "trireme/parallel/pipeline/executor.hpp"
#include "trireme/schedule/chunk_graph.hpp"

namespace trireme {

/// The model: calls blocks with entries of the batch and with results of blocks, and returns the loss. It is called
/// once for a batch, without tensors; the same on all ranks, so it depends neither on the rank nor on values.
using BlockForward = std::function<TensorOrPointer(const TensorDict& batch)>;

struct BatchOutcome {
  /// Of each microbatch: detached on the rank of the loss, elsewhere a pointer to it.
  std::vector<TensorOrPointer> losses;
  StepOutcome step;
};

class PipelineEngine {
 public:
  virtual ~PipelineEngine();
  PipelineEngine(const PipelineEngine&) = delete;
  PipelineEngine& operator=(const PipelineEngine&) = delete;

  /// Forward and backward of all microbatches. Adds the gradients of the sum of their losses, times `loss_gradient`, to
  /// .grad() of the blocks' parameters, in the order of the microbatches; 1. / microbatches.size() for their mean.
  ///
  /// `microbatches`: each entry is a tensor on exactly one rank, the same for all of them, and a TensorPointer to that
  /// rank on all others. Collective over the pipeline; all ranks throw the same error if that is violated
  /// (ConfigError), or if they do not call the same blocks (CommError).
  BatchOutcome train_batch(const BlockForward& forward, const std::vector<TensorDict>& microbatches,
                           double loss_gradient = 1);
  /// Forwards only, without graphs.
  BatchOutcome evaluate_batch(const BlockForward& forward, const std::vector<TensorDict>& microbatches);

  /// Of the last batch.
  const schedule::Schedule& schedule() const;

 protected:
  using MakeSchedule = schedule::Schedule (*)(const schedule::ChunkGraph& graph, int microbatches);
  PipelineEngine(PipelineP2P& p2p, MakeSchedule make_schedule);

 private:
  struct Plan;
  struct Batch;
  BatchOutcome run(const BlockForward& forward, const std::vector<TensorDict>& microbatches, bool backward,
                   double loss_gradient);
  std::unique_ptr<Plan> make_plan(const Batch& batch, bool backward) const;

  PipelineP2P& p2p_;
  const MakeSchedule make_schedule_;
  std::map<std::string, std::unique_ptr<Plan>> plans_;  // by what they depend on
  const Plan* last_ = nullptr;
  std::int64_t step_ = 0;
};

/// All forwards, then all backwards: holds the activations of all microbatches.
class AllForwardAllBackward final : public PipelineEngine {
 public:
  explicit AllForwardAllBackward(PipelineP2P& p2p);
};

/// A backward as soon as one is possible: holds the activations of as many microbatches as the pipeline is deep.
class OneForwardOneBackward final : public PipelineEngine {
 public:
  explicit OneForwardOneBackward(PipelineP2P& p2p);
};

}  // namespace trireme
