#include "trireme/base/cgroup_facts.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sched.h>

#include "trireme/testing/temp_folder.hpp"

namespace trireme {
namespace {

/// Fake control groups made of files.
class CgroupFiles {
 public:
  explicit CgroupFiles(const std::string& self) { std::ofstream(folder_ / "self") << self; }
  void write(const std::string& file, const std::string& contents) {
    std::filesystem::create_directories((folder_ / "cg" / file).parent_path());
    std::ofstream(folder_ / "cg" / file) << contents;
  }
  CgroupPlaces places() const {
    return {.root = folder_ / "cg", .self = folder_ / "self", .vmstat = folder_ / "cg/vmstat"};
  }

 private:
  TempFolder folder_;
};

TEST(CgroupFacts, VersionTwo) {
  CgroupFiles files("0::/user/job\n");
  EXPECT_EQ(cgroup_oom_kills(files.places()), std::nullopt);
  files.write("vmstat", "nr_free_pages 123\noom_kill 77\n");
  EXPECT_EQ(cgroup_oom_kills(files.places()), 77) << "of the machine";
  files.write("memory.events", "oom 9\noom_kill 9\n");
  EXPECT_EQ(cgroup_oom_kills(files.places()), 9) << "a container that shows only the root";
  files.write("user/job/memory.events", "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n");
  files.write("user/job/cpu.max", "250000 100000\n");
  EXPECT_EQ(cgroup_oom_kills(files.places()), 1);
  EXPECT_EQ(cgroup_cpu_limit(files.places()), 2.5);
}

TEST(CgroupFacts, VersionOne) {
  CgroupFiles files("4:memory:/a/b\n3:cpu,cpuacct:/c\n1:name=systemd:/\n0::/\n");
  files.write("memory/a/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
  files.write("cpu/c/cpu.cfs_quota_us", "50000\n");
  files.write("cpu/c/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_oom_kills(files.places()), 4);
  EXPECT_EQ(cgroup_cpu_limit(files.places()), 0.5);
  EXPECT_EQ(usable_cores(files.places()), 1);
}

TEST(CgroupFacts, NoLimit) {
  CgroupFiles two("0::/\n"), one("3:cpu:/\n"), none("");
  two.write("cpu.max", "max 100000\n");
  one.write("cpu/cpu.cfs_quota_us", "-1\n");
  one.write("cpu/cpu.cfs_period_us", "100000\n");
  for (const CgroupFiles* files : {&two, &one, &none}) {
    EXPECT_EQ(cgroup_cpu_limit(files->places()), std::nullopt);
    EXPECT_GE(usable_cores(files->places()), 1);
  }
  EXPECT_EQ(cgroup_cpu_limit({.root = "/no/such", .self = "/no/such"}), std::nullopt);
}

TEST(CgroupFacts, CoresThatWeMayNotRunOnAreNotCounted) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores({.root = "/no/such", .self = "/no/such"}), 1);
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace trireme
