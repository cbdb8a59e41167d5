#pragma once
// A step of a Trainer between its start and the reading of its results. Private to trainer*.cpp.
#include <optional>

#include "trireme/comm/random_state.hpp"
#include "trireme/nn/fp8_history.hpp"
#include "trireme/train/run/trainer.hpp"
#include "trireme/train/step/replica_check.hpp"
#include "trireme/train/step/step_agreement.hpp"
#include "trireme/train/trace/step_clock.hpp"

namespace trireme {

/// A step whose work is enqueued, and whose results are not read yet.
struct Trainer::StepInFlight {
  std::int64_t step;
  StepResult result;  // what is known at its start
  StepClock clock;
  RandomState random;       // of this rank at its start: what a checkpoint of the step before has to contain
  Fp8History::State fp8{};  // the same of scales in fp8
  StepOutcome outcome{};
  bool is_read_at_once = false;  // not during the next step
  double skip_above = 0;         // a norm above it skips the update
  at::Tensor loss_gradient = {};
  ReplicaCheck replicas{};
  std::optional<PendingUpdate> update{};
  PendingAgreement agreement{};
};

}  // namespace trireme
