#pragma once
// A step as a Chrome trace, one file a rank: its parts, and every communication under them.
#include <filesystem>
#include <vector>

#include "trireme/base/trace.hpp"
#include "trireme/comm/call.hpp"

namespace trireme {

/// Parts of a step as the steady clock had them, in ns.
struct StepPart {
  const char* name;
  std::int64_t begin_ns, end_ns;
};

/// trace/stepN/rankR.json.gz in `folder`.
void write_step_trace(const std::filesystem::path& folder, std::int64_t step, int rank, int world_size,
                      const std::string& backend, const std::vector<StepPart>& parts,
                      const std::vector<CallRecord>& calls);

}  // namespace trireme
