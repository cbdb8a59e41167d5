#include "trireme/planner/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::planner {
namespace {

using testing::HasSubstr;

TEST(Machine, GpusByName) {
  EXPECT_EQ(gpu_named("H100").name, "h100");
  EXPECT_GT(gpu_named("h200").memory_bytes, gpu_named("h100").memory_bytes);
  try {
    gpu_named("h300");
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("--gpu h300: not known\n  fix: one of a100, a100-40, h100"));
  }
}

TEST(Machine, GpusAsCudaNamesThem) {
  EXPECT_EQ(find_gpu("NVIDIA H200")->name, "h200");
  EXPECT_EQ(find_gpu("NVIDIA H100 80GB HBM3")->name, "h100");
  EXPECT_EQ(find_gpu("NVIDIA A100-SXM4-40GB")->name, "a100-40");
  EXPECT_EQ(find_gpu("NVIDIA GB200")->name, "gb200");
  for (const char* other : {"NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA GH200 480GB", "Tesla T4", ""})
    EXPECT_FALSE(find_gpu(other)) << other;
}

TEST(Machine, HostsOfAJob) {
  const Machine part{gpu_named("h100"), 4}, two{gpu_named("h100"), 16};
  EXPECT_EQ(part.per_host(), 4);
  EXPECT_EQ(part.hosts(), 1);
  EXPECT_EQ(two.per_host(), 8);
  EXPECT_EQ(two.hosts(), 2);
}

/// Large messages: (q - 1) / q of the bytes over the slowest link.
TEST(Machine, RingsFollowTheBandwidth) {
  const Machine machine{gpu_named("h100")};
  const Reach& reach = machine.reach;
  constexpr double kBytes = 64e9;
  EXPECT_DOUBLE_EQ(ring_seconds(kBytes, {1, 1}, machine), 0);
  EXPECT_NEAR(ring_seconds(kBytes, {8, 8}, machine), kBytes * 7 / 8 / (450e9 * reach.link), 1e-3);
  // Eight groups share the network of a host, or one has all of it.
  EXPECT_NEAR(ring_seconds(kBytes, {2, 1}, machine), kBytes / 2 / (50e9 * reach.network), 1e-3);
  EXPECT_NEAR(ring_seconds(kBytes, {16, 8}, machine), kBytes * 15 / 16 / (450e9 * reach.link), 1e-3);
  EXPECT_NEAR(all_reduce_seconds(kBytes, {8, 8}, machine), 2 * ring_seconds(kBytes, {8, 8}, machine), 1e-9);
}

/// Small ones over many ranks: an all-reduce takes a tree.
TEST(Machine, LatencyOfManyRanks) {
  const Machine machine{gpu_named("h100")};
  const Reach& reach = machine.reach;
  const RankGroup many{1024, 8};
  EXPECT_GT(ring_seconds(8, many, machine), 1000 * reach.step_s);
  EXPECT_LT(all_reduce_seconds(8, many, machine), 21 * reach.step_s + 15 * reach.network_step_s);
  EXPECT_GT(send_seconds(8, false, machine), send_seconds(8, true, machine));
}

TEST(Machine, AnAllToAllWaitsForTheSlowerOfBothLinks) {
  const Machine machine{gpu_named("h100")};
  const Reach& reach = machine.reach;
  EXPECT_NEAR(all_to_all_seconds(16e9, {16, 8}, machine), 16e9 / 2 / (50e9 * reach.network), 1e-3);
  EXPECT_NEAR(all_to_all_seconds(8e9, {8, 8}, machine), 7e9 / (450e9 * reach.link), 1e-3);
}

}  // namespace
}  // namespace trireme::planner
