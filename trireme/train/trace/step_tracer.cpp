#include "trireme/train/trace/step_tracer.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "trireme/base/stopwatch.hpp"

namespace trireme {

StepTracer::StepTracer(std::vector<std::int64_t> steps, std::filesystem::path folder, const World& world,
                       std::string backend, const DeviceMemory& memory, at::Device device)
    : steps_(std::move(steps)),
      folder_(std::move(folder)),
      world_(world),
      backend_(std::move(backend)),
      memory_(memory),
      clock_(device) {}

bool StepTracer::is_traced(std::int64_t step) const { return std::ranges::find(steps_, step) != steps_.end(); }

/// The recorder also has the calls of the last update, or of the next step: each belongs to the step of its tag. Calls
/// of a group of one rank do nothing.
void StepTracer::take_calls(TracedStep& traced) const {
  for (const CallRecord& call : world_.recorder().step_calls())
    if (call.tag.step == traced.step && !std::string_view(call.group).starts_with("self{"))
      traced.calls.push_back(call);
}

/// Of the host's own times, those of waits and of calls remain.
void StepTracer::use_device_times(TracedStep& traced) {
  const std::vector<DeviceMark> marks = clock_.take();
  const auto change = [&marks](std::int64_t& ns) { ns = device_time(marks, ns); };
  for (ActionSpan& span : traced.spans) change(span.begin_ns), change(span.end_ns);
  for (UnitEvent& event : traced.units) change(event.ns);
  for (MemorySample& sample : traced.memory) change(sample.ns);
  change(traced.update_ns);
  change(traced.end_ns);
}

void StepTracer::step_begins(std::int64_t step, UnitTrace& units) {
  if (!is_traced(step)) return;
  begin_ns_ = clock_.start();
  world_.recorder().keep_waits();
  units.start(memory_, clock_);
}

void StepTracer::gradients_summed(std::int64_t step, UnitTrace& units) {
  finish();
  if (!is_traced(step)) return;
  traced_ = TracedStep{.step = step, .units = units.take(), .unit_names = units.names(), .update_ns = steady_ns()};
  clock_.mark(traced_->update_ns);
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
  clock_.mark(traced_->end_ns);
  use_device_times(*traced_);
  done_ = std::exchange(traced_, std::nullopt);
}

void StepTracer::finish() {
  if (!done_) return;
  take_calls(*done_);
  write_step_trace(folder_, *done_, world_, backend_);
  done_.reset();
}

}  // namespace trireme
