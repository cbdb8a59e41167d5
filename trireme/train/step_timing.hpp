#pragma once
// The time of training steps, by phase.
#include <cstdint>

namespace trireme {

/// Seconds, for one step or summed over several.
struct StepTiming {
  std::int64_t begin_ns = 0;  // of the step, or of the first one, by steady_ns()
  double step = 0;            // total
  double data = 0, forward = 0, backward = 0, update = 0, validation = 0;
  double waited = 0;  // part of the total spent waiting for communication

  StepTiming& operator+=(const StepTiming& other) {
    step += other.step;
    data += other.data;
    forward += other.forward;
    backward += other.backward;
    update += other.update;
    validation += other.validation;
    waited += other.waited;
    return *this;
  }
};

}  // namespace trireme
