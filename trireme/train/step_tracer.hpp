#pragma once
// Traces the steps selected in [profiler].
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "trireme/train/step_trace.hpp"

namespace trireme {

class StepTracer {
 public:
  /// `steps`: those to trace; the others have no overhead.
  StepTracer(std::vector<std::int64_t> steps, std::filesystem::path folder, const World& world, std::string backend);

  /// After the gradients are reduced, before Mesh::end_step() drops the call records.
  void gradients_summed(std::int64_t step);
  /// After the update: writes the file.
  void step_done(const StepOutcome& outcome);

 private:
  const std::vector<std::int64_t> steps_;
  const std::filesystem::path folder_;
  const World& world_;
  const std::string backend_;
  std::optional<TracedStep> traced_;
};

}  // namespace trireme
