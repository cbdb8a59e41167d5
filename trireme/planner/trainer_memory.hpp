#pragma once
// Predicts the memory of a rank of any trainer, from the facts of software.hpp: to see which published layouts fit.
// Our own runs are predicted in detail by memory.hpp.
#include "trireme/planner/software.hpp"
#include "trireme/planner/step_time.hpp"

namespace trireme::planner {

/// Bytes on the rank with the most: weights, gradients and states, activations, logits, and what the process needs.
struct TrainerMemory {
  double states = 0, activations = 0, logits = 0, process = 0;
  double total() const { return states + activations + logits + process; }
};
TrainerMemory predict_trainer_memory(const StepWork& work, const Software& software);

}  // namespace trireme::planner
