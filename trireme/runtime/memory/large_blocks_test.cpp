#include "trireme/runtime/memory/large_blocks.hpp"

#include <cstring>

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr std::size_t kSmall = LargeBlocks::kLeast + 1, kLarge = (std::size_t{5} << 20) + 100;

TEST(LargeBlocks, CanBeWrittenToTheLastByte) {
  LargeBlocks blocks;
  for (const std::size_t bytes : {LargeBlocks::kLeast, kSmall, std::size_t{2} << 20, kLarge}) {
    void* const block = blocks.allocate(bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
    std::memset(block, 7, bytes);
    blocks.free(block, bytes);
  }
}

TEST(LargeBlocks, ASizeThatWasFreedComesBack) {
  LargeBlocks blocks;
  void *const a = blocks.allocate(kLarge), *const b = blocks.allocate(kLarge), *const c = blocks.allocate(kSmall);
  EXPECT_NE(a, b);
  blocks.free(a, kLarge);
  blocks.free(b, kLarge);
  EXPECT_EQ(blocks.kept(), 2 * kLarge);
  EXPECT_TRUE(blocks.has(kLarge));
  EXPECT_FALSE(blocks.has(kSmall));
  EXPECT_EQ(blocks.allocate(kLarge), b);  // the one that is likely still in cache
  EXPECT_EQ(blocks.allocate(kLarge), a);
  EXPECT_EQ(blocks.kept(), 0U);
  for (void* block : {a, b}) blocks.free(block, kLarge);
  blocks.free(c, kSmall);
}

TEST(LargeBlocks, TheOldestIsGivenBackFirst) {
  LargeBlocks blocks;
  void *const a = blocks.allocate(kLarge), *const b = blocks.allocate(kSmall), *const c = blocks.allocate(kLarge);
  blocks.free(a, kLarge);
  blocks.free(b, kSmall);
  blocks.free(c, kLarge);
  blocks.keep_at_most(kSmall + kLarge);
  EXPECT_EQ(blocks.kept(), kSmall + kLarge);
  EXPECT_EQ(blocks.allocate(kLarge), c);
  EXPECT_EQ(blocks.allocate(kSmall), b);
  EXPECT_EQ(blocks.kept(), 0U);
  blocks.free(c, kLarge);
  blocks.free(b, kSmall);
  blocks.keep_at_most(0);
  EXPECT_EQ(blocks.kept(), 0U);
}

TEST(LargeBlocks, NoMemoryIsNull) {
  LargeBlocks blocks;
  EXPECT_EQ(blocks.allocate(std::size_t{1} << 60), nullptr);
}

}  // namespace
}  // namespace trireme
