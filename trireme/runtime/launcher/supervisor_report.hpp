#pragma once
// Formats the result of a supervisor as an error message.
#include <string>
#include <vector>

#include "trireme/runtime/launcher/launch.hpp"
#include "trireme/runtime/launcher/supervisor.hpp"

namespace trireme::launcher {

struct ProcessNames {
  std::string one, many;            // "rank", "ranks"
  std::vector<std::string> each{};  // "rank 2"
  // Of the process that failed:
  std::string last_call{}, hint{}, log_file{};
};

/// What the caller of a launcher needs to know.
LaunchEnd end_of(const SupervisorResult& end, const ProcessNames& names);

/// "" if all went well.
std::string report_of(const SupervisorResult& end, const ProcessNames& names);

}  // namespace trireme::launcher
