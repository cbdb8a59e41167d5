#include "trireme/train/step_tracer.hpp"

#include <algorithm>
#include <utility>

#include "trireme/base/stopwatch.hpp"

namespace trireme {

StepTracer::StepTracer(std::vector<std::int64_t> steps, std::filesystem::path folder, const World& world,
                       std::string backend)
    : steps_(std::move(steps)), folder_(std::move(folder)), world_(world), backend_(std::move(backend)) {}

void StepTracer::gradients_summed(std::int64_t step) {
  if (std::ranges::find(steps_, step) == steps_.end()) return;
  traced_ = TracedStep{.step = step, .update_ns = steady_ns(), .calls = world_.recorder().step_calls()};
}

void StepTracer::step_done(const StepOutcome& outcome) {
  if (!traced_) return;
  traced_->spans = outcome.spans;
  traced_->end_ns = steady_ns();
  write_step_trace(folder_, *traced_, world_, backend_);
  traced_.reset();
}

}  // namespace trireme
