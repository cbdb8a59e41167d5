#pragma once
// Parser for a hostfile in DeepSpeed's format: `worker-1 slots=4`, one host per line.
#include <string>
#include <string_view>
#include <vector>

namespace trireme::launcher {

struct Host {
  std::string name;  // or user@name
  int slots;         // number of ranks on it
  bool operator==(const Host&) const = default;
};

/// `default_slots` applies to lines without slots= ; 0: slots= is required. Empty lines are ignored, # starts a
/// comment. ConfigError with the line for anything else, for a duplicate host, and for an empty list.
std::vector<Host> parse_hostfile(const std::string& file_name, std::string_view contents, int default_slots);

std::vector<Host> read_hostfile(const std::string& file_name, int default_slots);

}  // namespace trireme::launcher
