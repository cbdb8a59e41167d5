#include "trireme/engine/executor.hpp"

#include <algorithm>

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/memory_kind.hpp"
#include "trireme/comm/flight_recorder.hpp"

namespace trireme {

double StepOutcome::seconds(std::initializer_list<schedule::ActionKind> kinds) const {
  std::int64_t ns = 0;
  for (const ActionSpan& span : spans)
    if (std::ranges::find(kinds, span.action.op) != kinds.end()) ns += span.end_ns - span.begin_ns;
  return static_cast<double>(ns) * 1e-9;
}

Executor::Executor(schedule::Program program, Zero& zero, const Mesh& mesh)
    : program_(std::move(program)), zero_(zero), mesh_(mesh), backwards_(zero.num_chunks()) {
  for (const schedule::Action& action : program_) {
    require(action.chunk == 0, "the program has action ", str(action), ": pipelines cannot be run yet");
    if (action.op == schedule::ActionKind::B || action.op == schedule::ActionKind::W) ++backwards_[0];
  }
  require(backwards_[0] > 0, "a program without a backward");
}

StepOutcome Executor::run(const StepWork& work) {
  StepOutcome out{.loss_sum = at::zeros({}, zero_.parts()[0]->partition.tensor_options().dtype(at::kDouble))};
  std::map<int, at::Tensor> losses;  // from forward to backward, with their autograd graphs
  at::Tensor loss_gradient;
  std::vector<int> done(backwards_.size());
  const auto backward = [&](const schedule::Action& action) {
    const auto held = losses.extract(action.microbatch);
    require(!held.empty(), str(action), " comes before its forward");
    if (!loss_gradient.defined()) loss_gradient = work.loss_gradient();
    mesh_.tag({work.step, "backward"});
    const at::Tensor& loss = held.mapped();
    if (loss.requires_grad()) torch::autograd::backward({loss}, {loss_gradient.to(loss.scalar_type())});
  };
  for (const schedule::Action& action : program_) {
    const std::int64_t begin_ns = steady_ns();
    ZeroChunk& chunk = zero_.chunk(static_cast<std::size_t>(action.chunk));
    const auto is_last = [&] {
      const auto c = static_cast<std::size_t>(action.chunk);
      return ++done[c] == backwards_[c];
    };
    switch (action.op) {
      case schedule::ActionKind::F: {
        const MemoryScope activations(MemoryKind::activations);
        mesh_.tag({work.step, "forward"});
        const at::Tensor loss = work.forward(action.microbatch);
        out.loss_sum.add_(loss.detach());
        losses[action.microbatch] = loss;
        break;
      }
      case schedule::ActionKind::B:
        chunk.begin_microbatch(is_last());
        backward(action);
        chunk.end_microbatch();
        break;
      case schedule::ActionKind::I:
        chunk.begin_deferral(action.microbatch);
        backward(action);
        chunk.end_deferral();
        break;
      case schedule::ActionKind::W:
        mesh_.tag({work.step, "backward"});
        chunk.begin_microbatch(is_last());
        chunk.run_deferred(action.microbatch);
        chunk.end_microbatch();
        break;
    }
    out.spans.push_back({action, begin_ns, steady_ns()});
  }
  require(losses.empty(), losses.size(), " microbatches have no backward in the program");
  return out;
}

}  // namespace trireme
