#pragma once
// Writes a step as a Chrome trace, one file per rank: its phases, and all communication during them.
#include <filesystem>
#include <vector>

#include "trireme/comm/world.hpp"
#include "trireme/engine/executor.hpp"

namespace trireme {

/// The events to write. Times are those of steady_ns().
struct TracedStep {
  std::int64_t step = 0;
  std::vector<ActionSpan> spans{};         // forwards and backwards
  std::int64_t update_ns = 0, end_ns = 0;  // begin and end of the update
  std::vector<CallRecord> calls{};         // up to the end of gradient reduction
};

/// stepN/rankR.json.gz in `folder`.
void write_step_trace(const std::filesystem::path& folder, const TracedStep& traced, const World& world,
                      const std::string& backend);

}  // namespace trireme
