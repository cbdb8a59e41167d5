#pragma once
// A step as a Chrome trace, one file a rank: its parts, and every communication under them.
#include <filesystem>
#include <vector>

#include "trireme/comm/world.hpp"
#include "trireme/engine/executor.hpp"

namespace trireme {

/// What is drawn. Times are those of steady_ns().
struct TracedStep {
  std::int64_t step = 0;
  std::vector<ActionSpan> spans{};         // forwards and backwards
  std::int64_t update_ns = 0, end_ns = 0;  // when the update began, and when it was over
  std::vector<CallRecord> calls{};         // up to the sum of all gradients
};

/// stepN/rankR.json.gz in `folder`.
void write_step_trace(const std::filesystem::path& folder, const TracedStep& traced, const World& world,
                      const std::string& backend);

}  // namespace trireme
