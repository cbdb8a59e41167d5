#include "trireme/train/step_tracer.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "trireme/base/stopwatch.hpp"

namespace trireme {

StepTracer::StepTracer(std::vector<std::int64_t> steps, std::filesystem::path folder, const World& world,
                       std::string backend, const DeviceMemory& memory)
    : steps_(std::move(steps)),
      folder_(std::move(folder)),
      world_(world),
      backend_(std::move(backend)),
      memory_(memory) {}

bool StepTracer::is_traced(std::int64_t step) const { return std::ranges::find(steps_, step) != steps_.end(); }

/// The recorder also has the calls of the last update, or of the next step: each belongs to the step of its tag. Calls
/// of a group of one rank do nothing.
void StepTracer::take_calls(TracedStep& traced) const {
  for (const CallRecord& call : world_.recorder().step_calls())
    if (call.tag.step == traced.step && !std::string_view(call.group).starts_with("self{"))
      traced.calls.push_back(call);
}

void StepTracer::step_begins(std::int64_t step, UnitTrace& units) {
  if (!is_traced(step)) return;
  begin_ns_ = steady_ns();
  world_.recorder().keep_waits();
  units.start(memory_);
}

void StepTracer::gradients_summed(std::int64_t step, UnitTrace& units) {
  finish();
  if (!is_traced(step)) return;
  traced_ = TracedStep{.step = step, .units = units.take(), .unit_names = units.names(), .update_ns = steady_ns()};
  traced_->memory = units.take_memory();
  traced_->begin_ns = begin_ns_;
  take_calls(*traced_);
}

void StepTracer::step_done(const StepOutcome& outcome) {
  if (!traced_) return;
  traced_->spans = outcome.spans;
  traced_->end_ns = steady_ns();
  traced_->waits = world_.recorder().take_waits();
  traced_->memory.push_back(memory_.sample());
  done_ = std::exchange(traced_, std::nullopt);
}

void StepTracer::finish() {
  if (!done_) return;
  take_calls(*done_);
  write_step_trace(folder_, *done_, world_, backend_);
  done_.reset();
}

}  // namespace trireme
