#pragma once
// What the control group of this process allows it, and what it did to it. Versions 1 and 2.
#include <filesystem>
#include <optional>

namespace trireme {

/// Where the kernel tells; other folders in tests.
struct CgroupPlaces {
  std::filesystem::path root = "/sys/fs/cgroup";
  std::filesystem::path self = "/proc/self/cgroup";
};

/// Processes of the group that the kernel killed for want of memory, so far.
std::optional<long> cgroup_oom_kills(const CgroupPlaces& places = {});

/// Cores worth of time; nothing if it is not limited.
std::optional<double> cgroup_cpu_limit(const CgroupPlaces& places = {});

/// Cores that this process may run on, counted with the limit of its group. At least 1.
int usable_cores(const CgroupPlaces& places = {});

}  // namespace trireme
