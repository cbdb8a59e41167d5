#pragma once
// The time of training steps, by phase.

namespace trireme {

/// Seconds, for one step or summed over several.
struct StepTiming {
  double step = 0;  // total
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
