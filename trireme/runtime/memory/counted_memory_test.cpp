#include "trireme/runtime/memory/counted_memory.hpp"

#include <fstream>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace trireme {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::int64_t resident_mib() {
  std::int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE) / kMiB;
}

/// Written to, so that it has memory.
at::Tensor mib(std::int64_t n) { return at::ones({n * kMiB}, at::kByte); }

TEST(CountedMemory, CountsWhatIsAlive) {
  const CountedMemory memory;
  EXPECT_EQ(memory.alive(), 0);
  at::Tensor a = mib(3);
  const at::Tensor b = mib(2);
  EXPECT_EQ(memory.alive(), 5 * kMiB);
  a = at::Tensor();
  EXPECT_EQ(memory.alive(), 2 * kMiB);
  EXPECT_EQ(memory.peak(), 5 * kMiB);
  memory.forget_peak();
  EXPECT_EQ(memory.peak(), 2 * kMiB);
}

TEST(CountedMemory, FreedMemoryIsKeptUntilTheEnd) {
  const std::int64_t before = resident_mib();
  {
    const CountedMemory memory;
    mib(256);
    EXPECT_GT(resident_mib(), before + 240);
    mib(128);  // of those
    EXPECT_LT(resident_mib(), before + 280);
  }
  EXPECT_LT(resident_mib(), before + 30);
}

/// Blocks of 4 MiB, every second one of them freed, are of no use for a large one.
TEST(CountedMemory, LiveAndKeptTogetherAreATenthAboveThePeak) {
  const std::int64_t before = resident_mib();
  const CountedMemory memory;
  std::vector<at::Tensor> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(mib(4));
  for (std::size_t i = 0; i < blocks.size(); i += 2) blocks[i] = at::Tensor();
  EXPECT_GT(resident_mib(), before + 240);
  const at::Tensor large = mib(128);
  EXPECT_EQ(memory.alive(), 256 * kMiB);
  EXPECT_LT(resident_mib(), before + 256 + 26 + 20);
}

}  // namespace
}  // namespace trireme
