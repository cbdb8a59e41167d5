#pragma once
// Runs a program of schedule/: forwards and backwards of microbatches in its order. The only way a step runs.
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <vector>

#include "trireme/schedule/action.hpp"
#include "trireme/zero/zero.hpp"

namespace trireme {

struct StepWork {
  std::int64_t step = 0;  // for messages
  /// The sum of the losses of a microbatch's tokens, 0-dim.
  std::function<at::Tensor(int microbatch)> forward;
  /// Called once, before the first backward: the gradient of every such sum, 0-dim. It is loss scale / tokens of all
  /// ranks, so that gradients are added up and nothing else scales them.
  std::function<at::Tensor()> loss_gradient;
};

/// When an action of the program ran, by the host's steady clock.
struct ActionSpan {
  schedule::Action action;
  std::int64_t begin_ns = 0, end_ns = 0;
};

struct StepOutcome {
  at::Tensor loss_sum;  // of this rank's microbatches in their order: 0-dim, f64, on the device
  std::vector<ActionSpan> spans{};

  double seconds(std::initializer_list<schedule::ActionKind> kinds) const;
};

class Executor {
 public:
  /// The program of this rank, of one stage: forwards, and backwards whole (B) or split into the gradients of inputs
  /// (I) and of weights (W). Chunks beyond the first need pipelines.
  Executor(schedule::Program program, Zero& zero, const Mesh& mesh);

  /// Gradients are in `zero` afterwards, and on their way to be summed.
  StepOutcome run(const StepWork& work);

  const schedule::Program& program() const { return program_; }

 private:
  const schedule::Program program_;
  Zero& zero_;
  const Mesh& mesh_;
  std::vector<int> backwards_;  // by chunk: actions that compute weight gradients
};

}  // namespace trireme
