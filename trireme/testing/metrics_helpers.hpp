#pragma once
// Helpers for tests of report/.
#include <cstdint>

#include "trireme/metrics/step_record.hpp"

namespace trireme {

/// A step of 2,048 tokens, with everything that is measured on a CPU.
inline metrics::StepRecord cpu_step(std::int64_t step, std::int64_t steps, double loss) {
  return {.step = step,
          .steps = steps,
          .loss = loss,
          .grad_norm = 1.5,
          .lr = 1.5e-4,
          .tokens = 2048 * step,
          .tokens_per_sec = 58'412.5,
          .tokens_per_sec_per_rank = 14'603.125,
          .step_time_s = 0.03125,
          .train_time_s = 0.015625,
          .data_time_frac = 0.004,
          .comm_exposed_frac = 0.125};
}

/// A step with all fields set.
inline metrics::StepRecord full_step() {
  metrics::StepRecord record = cpu_step(200, 400, 2.914);
  record.bubble_frac = 0.0625;
  record.mfu = 0.381;
  record.tflops_per_rank = 376.5;
  record.mem_peak_gib = 0.0419921875;
  record.loss_scale = 65536;
  record.skipped = true;
  record.loss_z = 0.125;
  record.grad_norm_z = -1.25;
  record.val_loss = 2.875;
  return record;
}

}  // namespace trireme
