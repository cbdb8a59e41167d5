#pragma once
// Writes a step as a Chrome trace, one file per rank: its phases, the units of the model, and all communication.
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/comm/world.hpp"
#include "trireme/parallel/pipeline/executor.hpp"
#include "trireme/train/trace/unit_trace.hpp"

namespace trireme {

/// The events to write. Times are those of steady_ns().
struct TracedStep {
  std::int64_t step = 0;
  std::vector<ActionSpan> spans{};         // forwards and backwards
  std::vector<UnitEvent> units{};          // on the way through the model
  std::vector<std::string> unit_names{};   // by unit
  std::int64_t update_ns = 0, end_ns = 0;  // begin and end of the update
  std::vector<CallRecord> calls{};         // tagged with this step
  std::int64_t begin_ns = 0;               // of the step
  std::vector<WaitSpan> waits{};           // for communication
  std::vector<MemorySample> memory{};      // at the units, and at the begin and end of the update
};

/// "forward microbatch 0"; of a later model chunk "forward microbatch 0 chunk 1".
std::string span_name(const schedule::Action& action);

/// stepN/rankR.json.gz in `folder`.
void write_step_trace(const std::filesystem::path& folder, const TracedStep& traced, const World& world,
                      const std::string& backend);

}  // namespace trireme
