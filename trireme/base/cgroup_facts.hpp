#pragma once
// CPU limit, number of processes and OOM kills from the control group (cgroup) of this process. Versions 1 and 2.
#include <filesystem>
#include <optional>

#include <sys/types.h>

namespace trireme {

/// Paths of the kernel's files; other folders in tests.
struct CgroupPlaces {
  std::filesystem::path root = "/sys/fs/cgroup";
  std::filesystem::path self = "/proc/self/cgroup";
};

/// Number of OOM kills in the group so far.
std::optional<long> cgroup_oom_kills(const CgroupPlaces& places = {});

/// In cores; nullopt if there is no limit.
std::optional<double> cgroup_cpu_limit(const CgroupPlaces& places = {});

struct PidLimit {
  long max = 0, current = 0;  // processes and threads
};
/// nullopt if there is no limit.
std::optional<PidLimit> cgroup_pid_limit(const CgroupPlaces& places = {});

/// CPU cores available to this process, including the limit of its cgroup. At least 1. `process`: another one, whose
/// affinity counts instead; 0: this one.
int usable_cores(const CgroupPlaces& places = {}, pid_t process = 0);

}  // namespace trireme
