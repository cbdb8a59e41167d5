#pragma once
// Traces of the steps that [profiler] names.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "trireme/train/step_trace.hpp"

namespace trireme {

class StepTracer {
 public:
  /// `steps`: those to trace; the others cost nothing.
  StepTracer(std::vector<std::int64_t> steps, std::filesystem::path folder, const World& world, std::string backend);

  /// When the gradients are summed, before Mesh::end_step() forgets the calls.
  void gradients_summed(std::int64_t step);
  /// When the update is over: writes the file.
  void step_done(const StepOutcome& outcome);

 private:
  const std::vector<std::int64_t> steps_;
  const std::filesystem::path folder_;
  const World& world_;
  const std::string backend_;
  std::optional<TracedStep> traced_;
};

}  // namespace trireme
