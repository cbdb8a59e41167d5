#include "trireme/base/host_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace trireme {
namespace {

/// The value of a line "Name:   123 kB", in bytes; 0 if there is none.
double meminfo_value(const std::filesystem::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ":")) return 1024 * std::strtod(line.c_str() + name.size() + 1, nullptr);
  return 0;
}

}  // namespace

HostMemory host_memory(const CgroupPlaces& places, const std::filesystem::path& meminfo) {
  HostMemory memory{.total = meminfo_value(meminfo, "MemTotal"), .available = meminfo_value(meminfo, "MemAvailable")};
  const std::optional<MemoryLimit> limit = cgroup_memory_limit(places);
  if (!limit || limit->max >= memory.total) return memory;
  memory.cgroup_limit = memory.total = limit->max;
  memory.available = std::min(memory.available, std::max(0.0, limit->max - limit->used));
  return memory;
}

}  // namespace trireme
