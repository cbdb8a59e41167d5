#pragma once
// Traces the steps selected in [profiler].
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "trireme/train/trace/step_trace.hpp"

namespace trireme {

class StepTracer {
 public:
  /// `steps`: those to trace; the others have no overhead.
  StepTracer(std::vector<std::int64_t> steps, std::filesystem::path folder, const World& world, std::string backend,
             const DeviceMemory& memory, at::Device device);

  void step_begins(std::int64_t step, UnitTrace& units);
  /// After the gradients are reduced, before Mesh::end_step() drops the call records. Writes the last step, whose calls
  /// of the update are complete now.
  void gradients_summed(std::int64_t step, UnitTrace& units);
  /// After the update.
  void step_done(const StepOutcome& outcome);
  /// After the last step: writes it.
  void finish();

 private:
  bool is_traced(std::int64_t step) const;
  void take_calls(TracedStep& traced) const;
  void use_device_times(TracedStep& traced);

  const std::vector<std::int64_t> steps_;
  const std::filesystem::path folder_;
  const World& world_;
  const std::string backend_;
  const DeviceMemory& memory_;
  DeviceClock clock_;
  std::int64_t begin_ns_ = 0;         // of the step that runs
  std::optional<TracedStep> traced_;  // the step that runs
  std::optional<TracedStep> done_;    // the last step, until its last calls have ended
};

}  // namespace trireme
