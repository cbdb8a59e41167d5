#pragma once
// Memory of this machine, as far as the control group of this process may use it.
#include <filesystem>
#include <optional>

#include "trireme/base/cgroup_facts.hpp"

namespace trireme {

struct HostMemory {
  double total = 0, available = 0;       // bytes; `available` without swapping
  std::optional<double> cgroup_limit{};  // set if it is lower than the machine's memory; then `total` is this
};

HostMemory host_memory(const CgroupPlaces& places = {}, const std::filesystem::path& meminfo = "/proc/meminfo");

}  // namespace trireme
