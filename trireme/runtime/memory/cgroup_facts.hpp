#pragma once
// CPU limit and OOM kills from the control group (cgroup) of this process. Versions 1 and 2.
#include <filesystem>
#include <optional>

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

/// CPU cores available to this process, including the limit of its cgroup. At least 1.
int usable_cores(const CgroupPlaces& places = {});

}  // namespace trireme
