#pragma once
// The model of a run on its mesh, with initial or loaded weights, and what runs its steps.
#include <memory>
#include <string>
#include <vector>

#include "trireme/engine/executor.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/train/batches.hpp"
#include "trireme/train/non_finite.hpp"
#include "trireme/zero/zero.hpp"

namespace trireme {

class TrainingModel {
 public:
  /// A call of all ranks. `config` has its dtypes resolved; `warnings` gets what a user should know of the weights.
  TrainingModel(const Config& config, ParallelContext& context, int microbatches, std::vector<std::string>& warnings);

  Decoder& decoder() { return *decoder_; }
  Zero& zero() { return *zero_; }
  Executor& executor() { return *executor_; }

  /// The sum of the losses of a microbatch's tokens.
  at::Tensor loss(const Microbatch& microbatch, const Probe& probe = {});

 private:
  CrossEntropyOptions loss_options_;
  std::shared_ptr<Decoder> decoder_;
  std::unique_ptr<Zero> zero_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace trireme
