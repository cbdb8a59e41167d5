#pragma once
// How a supervisor ended, as a person reads it.
#include <string>
#include <vector>

#include "trireme/runtime/launcher/supervisor.hpp"

namespace trireme::launcher {

struct ProcessNames {
  std::string one, many;            // "rank", "ranks"
  std::vector<std::string> each{};  // "rank 2"
  // Of the one that failed:
  std::string last_call{}, hint{}, log_file{};
};

/// "" if all went well.
std::string report_of(const SupervisorResult& end, const ProcessNames& names);

}  // namespace trireme::launcher
