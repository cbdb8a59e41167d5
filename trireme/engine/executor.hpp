#pragma once
// Executes a pipeline schedule program: forwards and backwards of the microbatches in its order. Every step runs
// through it.
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <vector>

#include "trireme/schedule/action.hpp"
#include "trireme/zero/zero.hpp"

namespace trireme {

struct StepWork {
  std::int64_t step = 0;  // for error messages
  /// The loss of a microbatch, summed over its tokens, 0-dim.
  std::function<at::Tensor(int microbatch)> forward;
  /// Called once, before the first backward: the gradient of every such loss, 0-dim. It is loss scale / tokens of all
  /// ranks, so gradients are summed and need no further scaling.
  std::function<at::Tensor()> loss_gradient;
};

/// When an action of the program ran, by the host's steady clock.
struct ActionSpan {
  schedule::Action action;
  std::int64_t begin_ns = 0, end_ns = 0;
};

struct StepOutcome {
  at::Tensor loss_sum;  // summed over this rank's microbatches in order: 0-dim, f64, on the device
  std::vector<ActionSpan> spans{};

  double seconds(std::initializer_list<schedule::ActionKind> kinds) const;
};

class Executor {
 public:
  /// The program of this rank, with a single pipeline stage: forwards, and backwards either full (B) or split into
  /// input gradients (I) and weight gradients (W). Several chunks need pipelines.
  Executor(schedule::Program program, Zero& zero, const Mesh& mesh);

  /// Afterwards the gradients are in `zero`, and their reduction has started.
  StepOutcome run(const StepWork& work);

  const schedule::Program& program() const { return program_; }

 private:
  const schedule::Program program_;
  Zero& zero_;
  const Mesh& mesh_;
  std::vector<int> backwards_;  // by chunk: number of actions that compute weight gradients
};

}  // namespace trireme
