#include "trireme/engine/executor.hpp"

#include <algorithm>
#include <chrono>

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/memory_kind.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

Executor::Executor(Program program, Zero& zero) : program_(std::move(program)), zero_(zero) {
  for (const Step& step : program_) {
    require(step.chunk == 0 && (step.op == StepOp::F || step.op == StepOp::B), "the program has step ", str(step),
            ": pipelines cannot be run yet");
    if (step.op == StepOp::B) ++backwards_;
  }
  require(backwards_ > 0, "a program without a backward");
}

StepOutcome Executor::run(const StepWork& work) {
  StepOutcome out{.loss_sum = at::zeros({}, zero_.partition().tensor_options().dtype(at::kDouble))};
  std::map<int, at::Tensor> losses;  // with what their backward needs, from forward to backward
  at::Tensor seed;
  int done = 0;
  for (const Step& step : program_) {
    const Clock::time_point begin = Clock::now();
    switch (step.op) {
      case StepOp::F: {
        const MemoryScope activations(MemoryKind::activations);
        zero_.partition().mesh().tag({work.step, "forward"});
        const at::Tensor loss = work.forward(step.microbatch);
        out.loss_sum.add_(loss.detach());
        losses[step.microbatch] = loss;
        out.forward_s += seconds_since(begin);
        break;
      }
      case StepOp::B: {
        const auto held = losses.extract(step.microbatch);
        require(!held.empty(), str(step), " comes before its forward");
        if (!seed.defined()) seed = work.seed();
        zero_.partition().mesh().tag({work.step, "backward"});
        zero_.begin_microbatch(++done == backwards_);
        const at::Tensor& loss = held.mapped();
        if (loss.requires_grad()) torch::autograd::backward({loss}, {seed.to(loss.scalar_type())});
        zero_.end_microbatch();
        out.backward_s += seconds_since(begin);
        break;
      }
      default: throw InternalError(text(str(step), ": pipelines cannot be run yet"));
    }
  }
  require(losses.empty(), losses.size(), " microbatches have no backward in the program");
  return out;
}

}  // namespace trireme
