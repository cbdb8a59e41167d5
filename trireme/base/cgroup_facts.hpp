#pragma once
// CPU and memory limits, number of processes and OOM kills from the control group (cgroup) of this process. Versions 1
// and 2.
#include <filesystem>
#include <optional>

#include <sys/types.h>

namespace trireme {

/// Paths of the kernel's files; other folders in tests.
struct CgroupPlaces {
  std::filesystem::path root = "/sys/fs/cgroup";
  std::filesystem::path self = "/proc/self/cgroup";
  std::filesystem::path vmstat = "/proc/vmstat";
};

/// Number of OOM kills so far: in the group, or on the machine if the group does not count them.
std::optional<long> cgroup_oom_kills(const CgroupPlaces& places = {});

/// In cores; nullopt if there is no limit.
std::optional<double> cgroup_cpu_limit(const CgroupPlaces& places = {});

struct PidLimit {
  long max = 0, current = 0;  // processes and threads
};
/// nullopt if there is no limit.
std::optional<PidLimit> cgroup_pid_limit(const CgroupPlaces& places = {});

struct MemoryLimit {
  double max = 0, used = 0;  // bytes; `used` without the page cache that can be taken back
};
/// nullopt if there is no limit.
std::optional<MemoryLimit> cgroup_memory_limit(const CgroupPlaces& places = {});

/// CPU cores available to this process, including the limit of its cgroup. At least 1. `process`: another one, whose
/// affinity counts instead; 0: this one.
int usable_cores(const CgroupPlaces& places = {}, pid_t process = 0);

}  // namespace trireme
