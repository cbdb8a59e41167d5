#pragma once
// Where the time of training steps goes.

namespace trireme {

/// Seconds, of one step or of many.
struct StepTiming {
  double step = 0;  // all of it
  double data = 0, forward = 0, backward = 0, update = 0, validation = 0;
  double waited = 0;  // of all that, in waits for communication

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
