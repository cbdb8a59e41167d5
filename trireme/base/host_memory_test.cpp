#include "trireme/base/host_memory.hpp"

#include <fstream>

#include <gtest/gtest.h>

#include "trireme/testing/temp_folder.hpp"

namespace trireme {
namespace {

constexpr double kMiB = 0x1p20;

struct FakeHost {
  FakeHost() {
    std::ofstream(folder / "meminfo") << "MemTotal:  1048576 kB\nMemFree: 1 kB\nMemAvailable:   524288 kB\n";
    std::ofstream(folder / "self") << "0::/job\n";
    std::filesystem::create_directories(folder / "job");
  }
  void write(const char* name, const char* words) const { std::ofstream(folder / "job" / name) << words; }
  HostMemory memory() const {
    return host_memory({.root = folder.path(), .self = folder / "self"}, folder / "meminfo");
  }
  TempFolder folder;
};

TEST(HostMemory, OfTheMachine) {
  const FakeHost host;
  EXPECT_EQ(host.memory().total, 1024 * kMiB);
  EXPECT_EQ(host.memory().available, 512 * kMiB);
  EXPECT_FALSE(host.memory().cgroup_limit);
  host.write("memory.max", "max\n");
  EXPECT_EQ(host.memory().total, 1024 * kMiB);
}

TEST(HostMemory, OfTheControlGroup) {
  const FakeHost host;
  host.write("memory.max", "104857600\n");
  host.write("memory.current", "62914560\n");
  host.write("memory.stat", "anon 10485760\ninactive_file 52428800\nfile 52428800\n");
  EXPECT_EQ(host.memory().total, 100 * kMiB);
  EXPECT_EQ(host.memory().cgroup_limit, 100 * kMiB);
  EXPECT_EQ(host.memory().available, 90 * kMiB) << "the page cache can be taken back";
  std::ofstream(host.folder / "memory.max") << "52428800\n";
  EXPECT_EQ(host.memory().total, 50 * kMiB) << "of a group above it";
  std::filesystem::remove(host.folder / "memory.max");
  host.write("memory.max", "104857600000\n");
  EXPECT_EQ(host.memory().available, 512 * kMiB) << "more than the machine has";
}

TEST(HostMemory, OfTheControlGroupVersion1) {
  const FakeHost host;
  std::ofstream(host.folder / "self") << "4:memory:/job\n";
  std::filesystem::create_directories(host.folder / "memory/job");
  std::ofstream(host.folder / "memory/job/memory.limit_in_bytes") << "104857600\n";
  std::ofstream(host.folder / "memory/job/memory.usage_in_bytes") << "20971520\n";
  std::ofstream(host.folder / "memory/job/memory.stat") << "cache 1\ntotal_inactive_file 10485760\n";
  EXPECT_EQ(host.memory().total, 100 * kMiB);
  EXPECT_EQ(host.memory().available, 90 * kMiB);
}

}  // namespace
}  // namespace trireme
