#include "trireme/train/trace/step_clock.hpp"

#include <algorithm>

#include "trireme/base/stopwatch.hpp"

namespace trireme {
namespace {

double seconds_of(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

StepClock::StepClock(const FlightRecorder& recorder, bool pipeline)
    : recorder_(recorder), pipeline_(pipeline), begin_ns_(steady_ns()), waited_before_ns_(recorder.waited_ns()) {}

double StepClock::seconds() const { return seconds_of(steady_ns() - begin_ns_); }

void StepClock::data_taken() {
  actions_begin_ns_ = steady_ns();
  time_.data = seconds_of(actions_begin_ns_ - begin_ns_);
}

void StepClock::executed(const StepOutcome& outcome) {
  using schedule::ActionKind;
  time_.forward = outcome.seconds({ActionKind::F});
  time_.backward = outcome.seconds({ActionKind::B, ActionKind::I, ActionKind::W});
  std::int64_t in_actions_ns = 0;
  for (const ActionSpan& span : outcome.spans) {
    in_actions_ns += span.end_ns - span.begin_ns;
    waited_in_actions_ns_ += span.waited_ns;
  }
  last_action_ns_ = outcome.spans.empty() ? actions_begin_ns_ : outcome.spans.back().end_ns;
  const std::int64_t between_ns = last_action_ns_ - actions_begin_ns_ - in_actions_ns;
  // Outside of actions a rank waits for its inputs; after the last one, until its outputs are sent.
  waited_between_ns_ = std::min(waited_ns() - waited_in_actions_ns_, between_ns);
  if (pipeline_) time_.idle = seconds_of(between_ns);
}

metrics::RankTime StepClock::until_now() const {
  metrics::RankTime time = time_;
  const std::int64_t now_ns = steady_ns(), waited = waited_ns();
  const std::int64_t waited_after_ns = waited - waited_in_actions_ns_ - waited_between_ns_;
  time.elapsed = seconds_of(now_ns - begin_ns_);
  time.waited = seconds_of(pipeline_ ? waited - waited_between_ns_ : waited);
  time.update = seconds_of(std::max<std::int64_t>(0, now_ns - last_action_ns_ - waited_after_ns));
  return time;
}

}  // namespace trireme
