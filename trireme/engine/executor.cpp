#include "trireme/engine/executor.hpp"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/memory_kind.hpp"
#include "trireme/comm/flight_recorder.hpp"

namespace trireme {

double StepOutcome::seconds(schedule::ActionKind op) const {
  std::int64_t ns = 0;
  for (const ActionSpan& span : spans)
    if (span.step.op == op) ns += span.end_ns - span.begin_ns;
  return static_cast<double>(ns) * 1e-9;
}

Executor::Executor(schedule::Program program, Zero& zero) : program_(std::move(program)), zero_(zero) {
  for (const schedule::Action& step : program_) {
    require(step.chunk == 0 && (step.op == schedule::ActionKind::F || step.op == schedule::ActionKind::B),
            "the program has step ", str(step), ": pipelines cannot be run yet");
    if (step.op == schedule::ActionKind::B) ++backwards_;
  }
  require(backwards_ > 0, "a program without a backward");
}

StepOutcome Executor::run(const StepWork& work) {
  StepOutcome out{.loss_sum = at::zeros({}, zero_.partition().tensor_options().dtype(at::kDouble))};
  std::map<int, at::Tensor> losses;  // with what their backward needs, from forward to backward
  at::Tensor seed;
  int done = 0;
  for (const schedule::Action& step : program_) {
    const std::int64_t begin_ns = steady_ns();
    switch (step.op) {
      case schedule::ActionKind::F: {
        const MemoryScope activations(MemoryKind::activations);
        zero_.partition().mesh().tag({work.step, "forward"});
        const at::Tensor loss = work.forward(step.microbatch);
        out.loss_sum.add_(loss.detach());
        losses[step.microbatch] = loss;
        break;
      }
      case schedule::ActionKind::B: {
        const auto held = losses.extract(step.microbatch);
        require(!held.empty(), str(step), " comes before its forward");
        if (!seed.defined()) seed = work.seed();
        zero_.partition().mesh().tag({work.step, "backward"});
        zero_.begin_microbatch(++done == backwards_);
        const at::Tensor& loss = held.mapped();
        if (loss.requires_grad()) torch::autograd::backward({loss}, {seed.to(loss.scalar_type())});
        zero_.end_microbatch();
        break;
      }
      default: throw InternalError(text(str(step), ": pipelines cannot be run yet"));
    }
    out.spans.push_back({step, begin_ns, steady_ns()});
  }
  require(losses.empty(), losses.size(), " microbatches have no backward in the program");
  return out;
}

}  // namespace trireme
