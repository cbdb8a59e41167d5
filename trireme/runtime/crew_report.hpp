#pragma once
// How a crew ended, as a person reads it.
#include <string>
#include <vector>

#include "trireme/runtime/crew.hpp"

namespace trireme {

struct CrewNames {
  std::string one, many;            // "rank", "ranks"
  std::vector<std::string> each{};  // "rank 2"
  // Of the one that failed:
  std::string last_call{}, hint{}, log_file{};
};

/// "" if all went well.
std::string report_of(const CrewEnd& end, const CrewNames& names);

}  // namespace trireme
