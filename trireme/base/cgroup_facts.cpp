#include "trireme/base/cgroup_facts.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// This process's folder in the hierarchy of `controller`; "" is version 2's. The root of the hierarchy if a container
/// shows only that.
std::vector<fs::path> cgroup_folders(const CgroupPlaces& places, const std::string& controller) {
  std::vector<fs::path> folders;
  std::ifstream in(places.self);
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    if (names.find("," + controller + ",") == std::string::npos) continue;
    const fs::path base = places.root / controller;
    folders.push_back(base / fs::path(line.substr(second + 1)).relative_path());
    folders.push_back(base);
  }
  return folders;
}

std::ifstream open_first(const std::vector<fs::path>& folders, const char* file) {
  for (const fs::path& folder : folders)
    if (std::ifstream in(folder / file); in) return in;
  std::ifstream none;
  none.setstate(std::ios::failbit);
  return none;
}

std::optional<long> count_named(std::ifstream in, const std::string& wanted) {
  std::string name;
  for (long count = 0; in >> name >> count;)
    if (name == wanted) return count;
  return std::nullopt;
}

/// The cores allowed by Slurm, taskset or a cpuset; the standard library counts all online cores.
int cores_of_affinity(pid_t process) {
  for (std::size_t size = 1; size <= 64; size *= 2) {  // 1024 cores each
    std::vector<cpu_set_t> sets(size);
    if (::sched_getaffinity(process, size * sizeof(cpu_set_t), sets.data()) == 0)
      return std::max(1, CPU_COUNT_S(size * sizeof(cpu_set_t), sets.data()));
  }
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

std::optional<long> cgroup_oom_kills(const CgroupPlaces& places) {
  if (const auto count = count_named(open_first(cgroup_folders(places, ""), "memory.events"), "oom_kill")) return count;
  if (const auto count = count_named(open_first(cgroup_folders(places, "memory"), "memory.oom_control"), "oom_kill"))
    return count;
  return count_named(std::ifstream(places.vmstat), "oom_kill");
}

std::optional<double> cgroup_cpu_limit(const CgroupPlaces& places) {
  double quota = 0, period = 0;
  std::ifstream both = open_first(cgroup_folders(places, ""), "cpu.max");
  if (both >> quota >> period && quota > 0 && period > 0) return quota / period;  // "max 100000" is no number
  const std::vector<fs::path> folders = cgroup_folders(places, "cpu");
  std::ifstream quota_file = open_first(folders, "cpu.cfs_quota_us"),
                period_file = open_first(folders, "cpu.cfs_period_us");
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

std::optional<PidLimit> cgroup_pid_limit(const CgroupPlaces& places) {
  for (const char* controller : {"", "pids"}) {
    const std::vector<fs::path> folders = cgroup_folders(places, controller);
    PidLimit limit;
    std::ifstream max = open_first(folders, "pids.max"), current = open_first(folders, "pids.current");
    if (max >> limit.max && current >> limit.current) return limit;  // "max" is no number
  }
  return std::nullopt;
}

std::optional<MemoryLimit> cgroup_memory_limit(const CgroupPlaces& places) {
  // A group is limited by those above it, too: the smallest counts.
  const auto read = [](const std::vector<fs::path>& folders, const char* max_file, const char* used_file,
                       const char* cache) -> std::optional<MemoryLimit> {
    std::optional<MemoryLimit> lowest;
    if (folders.empty()) return lowest;
    const fs::path top = folders.back();
    for (fs::path folder = folders.front();; folder = folder.parent_path()) {
      MemoryLimit limit;
      std::ifstream max(folder / max_file), used(folder / used_file);
      if (max >> limit.max && limit.max > 0 && (!lowest || limit.max < lowest->max)) {  // "max" is no number
        if (used >> limit.used)
          limit.used -= static_cast<double>(count_named(std::ifstream(folder / "memory.stat"), cache).value_or(0));
        lowest = limit;
      }
      if (folder == top || !folder.has_relative_path()) return lowest;
    }
  };
  if (const auto limit = read(cgroup_folders(places, ""), "memory.max", "memory.current", "inactive_file"))
    return limit;
  return read(cgroup_folders(places, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes",
              "total_inactive_file");
}

int usable_cores(const CgroupPlaces& places, pid_t process) {
  const int cores = cores_of_affinity(process);
  const std::optional<double> limit = cgroup_cpu_limit(places);
  return limit ? std::clamp(static_cast<int>(std::ceil(*limit)), 1, cores) : cores;
}

}  // namespace trireme
