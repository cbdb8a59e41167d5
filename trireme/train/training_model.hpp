#pragma once
// The model of a run on its mesh, with initialized or loaded weights, and the executor of its steps.
#include <memory>
#include <string>
#include <vector>

#include "trireme/engine/executor.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/train/batches.hpp"
#include "trireme/train/non_finite.hpp"
#include "trireme/train/unit_trace.hpp"
#include "trireme/zero/zero.hpp"

namespace trireme {

class TrainingModel {
 public:
  /// Collective. `config` has resolved dtypes; notes about the loaded weights are added to `warnings`. `resumes`: a
  /// checkpoint will set the weights, which are zero until then.
  TrainingModel(const Config& config, ParallelContext& context, int microbatches, bool resumes,
                std::vector<std::string>& warnings);

  Decoder& decoder() { return *decoder_; }
  Zero& zero() { return *zero_; }
  Executor& executor() { return *executor_; }
  UnitTrace& unit_trace() { return *unit_trace_; }

  /// The loss of a microbatch, summed over its tokens.
  at::Tensor loss(const Microbatch& microbatch, const Probe& probe = {});

 private:
  CrossEntropyOptions loss_options_;
  std::shared_ptr<Decoder> decoder_;
  std::unique_ptr<Zero> zero_;
  std::unique_ptr<UnitTrace> unit_trace_;  // between the decoder and the hooks of `zero_`
  std::unique_ptr<Executor> executor_;
};

}  // namespace trireme
