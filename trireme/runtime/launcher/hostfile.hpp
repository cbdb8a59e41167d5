#pragma once
// The hosts of a job, as DeepSpeed writes them: `worker-1 slots=4`, one a line.
#include <string>
#include <string_view>
#include <vector>

namespace trireme::launcher {

struct Host {
  std::string name;  // or user@name
  int slots;         // ranks on it
  bool operator==(const Host&) const = default;
};

/// `default_slots` are those of a line without slots= ; 0: each line must say. Empty lines and what follows a # are
/// comments. ConfigError with the line for anything else, for a host named twice, and for no hosts at all.
std::vector<Host> parse_hostfile(const std::string& file_name, std::string_view contents, int default_slots);

std::vector<Host> read_hostfile(const std::string& file_name, int default_slots);

}  // namespace trireme::launcher
