#pragma once
// Divides a step of this rank into its parts, by the host's clock.
#include <cstdint>

#include "trireme/comm/calls/flight_recorder.hpp"
#include "trireme/metrics/step_shares.hpp"
#include "trireme/parallel/pipeline/executor.hpp"

namespace trireme {

/// From its construction on. On a GPU the host only starts the work, and the parts mean nothing.
class StepClock {
 public:
  /// `pipeline`: what a rank waits for between its actions are those of other ranks.
  StepClock(const FlightRecorder& recorder, bool pipeline);

  std::int64_t begin_ns() const { return begin_ns_; }
  double seconds() const;

  /// The data is there; forward and backward begin.
  void data_taken();
  void executed(const StepOutcome& outcome);

  double data_seconds() const { return time_.data; }
  double last_action_seconds() const { return static_cast<double>(last_action_ns_ - begin_ns_) * 1e-9; }
  /// What this rank has done until now, after executed().
  metrics::RankTime until_now() const;

 private:
  std::int64_t waited_ns() const { return recorder_.waited_ns() - waited_before_ns_; }

  const FlightRecorder& recorder_;
  const bool pipeline_;
  const std::int64_t begin_ns_, waited_before_ns_;
  std::int64_t actions_begin_ns_ = 0, last_action_ns_ = 0;
  std::int64_t waited_in_actions_ns_ = 0, waited_between_ns_ = 0;
  metrics::RankTime time_{};
};

}  // namespace trireme
