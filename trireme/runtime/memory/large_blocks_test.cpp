#include "trireme/runtime/memory/large_blocks.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace trireme {
namespace {

constexpr std::size_t kSmall = LargeBlocks::kLeast, kHugePage = std::size_t{2} << 20, kLarge = 3 * kHugePage;

char* allocated(LargeBlocks& blocks, std::size_t bytes) { return static_cast<char*>(blocks.allocate(bytes)); }

/// How much of a block has memory.
std::size_t resident(const void* block, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(bytes / page);
  EXPECT_EQ(mincore(const_cast<void*>(block), bytes, pages.data()), 0);
  return page * static_cast<std::size_t>(std::ranges::count_if(pages, [](unsigned char p) { return (p & 1) != 0; }));
}

TEST(LargeBlocks, CanBeWrittenToTheLastByte) {
  LargeBlocks blocks;
  for (const std::size_t bytes : {kSmall, kSmall + 1, std::size_t{2} << 20, kLarge + 100}) {
    void* const block = blocks.allocate(bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
    std::memset(block, 7, bytes);
    blocks.free(block, bytes);
  }
}

TEST(LargeBlocks, AreCutFromTheSmallestFreeRange) {
  LargeBlocks blocks;
  char *const a = allocated(blocks, kLarge), *const between = allocated(blocks, kSmall);
  char *const b = allocated(blocks, 2 * kSmall), *const behind = allocated(blocks, kSmall);
  blocks.free(a, kLarge);
  blocks.free(b, 2 * kSmall);
  EXPECT_EQ(blocks.kept(), kLarge + 2 * kSmall);
  EXPECT_EQ(allocated(blocks, kSmall), b);
  EXPECT_EQ(allocated(blocks, kSmall), b + kSmall);
  EXPECT_EQ(allocated(blocks, kSmall), a);
  EXPECT_EQ(blocks.kept(), kLarge - kSmall);
  for (char* block : {a, b, b + kSmall, between, behind}) blocks.free(block, kSmall);
}

TEST(LargeBlocks, FreeNeighboursServeALargerBlock) {
  LargeBlocks blocks;
  char *const a = allocated(blocks, kSmall), *const b = allocated(blocks, kSmall), *const c = allocated(blocks, kSmall);
  char* const behind = allocated(blocks, kSmall);
  ASSERT_EQ(b, a + kSmall);
  ASSERT_EQ(c, b + kSmall);
  for (char* block : {a, c, b}) blocks.free(block, kSmall);
  EXPECT_EQ(allocated(blocks, 3 * kSmall), a);
  blocks.free(a, 3 * kSmall);
  // Pages that went back to the system are no hindrance.
  blocks.keep_at_most(0);
  EXPECT_EQ(allocated(blocks, 2 * kSmall), a);
  blocks.free(a, 2 * kSmall);
  EXPECT_EQ(allocated(blocks, 3 * kSmall), a);
  EXPECT_EQ(blocks.kept(), 0U);
  blocks.free(a, 3 * kSmall);
  blocks.free(behind, kSmall);
}

TEST(LargeBlocks, PagesOfTheOldestAreReturnedFirst) {
  LargeBlocks blocks;
  char *const a = allocated(blocks, kLarge), *const b = allocated(blocks, kLarge), *const c = allocated(blocks, kLarge);
  char* const behind = allocated(blocks, kSmall);
  ASSERT_EQ(b, a + kLarge);
  for (char* block : {a, b, c}) std::memset(block, 7, kLarge);
  for (char* block : {b, a, c}) blocks.free(block, kLarge);  // neighbours, but of different ages
  blocks.keep_at_most(2 * kLarge);
  EXPECT_EQ(blocks.kept(), 2 * kLarge);
  EXPECT_EQ(resident(b, kLarge), 0U);
  EXPECT_EQ(resident(a, kLarge), kLarge);
  EXPECT_EQ(resident(c, kLarge), kLarge);
  blocks.keep_at_most(2 * kLarge - 1);  // a huge page, from the end
  EXPECT_EQ(blocks.kept(), 2 * kLarge - kHugePage);
  EXPECT_EQ(a[0], 7);
  EXPECT_EQ(resident(a + kLarge - kHugePage, kHugePage), 0U);
  EXPECT_EQ(resident(c, kLarge), kLarge);
  blocks.keep_at_most(0);
  EXPECT_EQ(resident(a, 3 * kLarge), 0U);
  EXPECT_EQ(blocks.kept(), 0U);
  blocks.free(behind, kSmall);
}

TEST(LargeBlocks, AreCutWhereThereArePages) {
  LargeBlocks blocks;
  char *const a = allocated(blocks, kLarge), *const b = allocated(blocks, kLarge),
              *const behind = allocated(blocks, kSmall);
  blocks.free(a, kLarge);
  blocks.keep_at_most(0);
  blocks.free(b, kLarge);
  EXPECT_EQ(allocated(blocks, kSmall), b + kLarge - kSmall);
  EXPECT_EQ(blocks.kept(), kLarge - kSmall);
  blocks.free(b + kLarge - kSmall, kSmall);
  blocks.free(behind, kSmall);
}

TEST(LargeBlocks, AddressesAreReturnedWithTheLastBlock) {
  LargeBlocks blocks;
  char *const a = allocated(blocks, kLarge), *const b = allocated(blocks, kSmall);
  std::vector<unsigned char> pages(kLarge);
  blocks.free(a, kLarge);
  blocks.keep_at_most(0);
  EXPECT_EQ(mincore(a, kLarge, pages.data()), 0);
  blocks.free(b, kSmall);
  blocks.keep_at_most(0);
  EXPECT_EQ(mincore(a, kLarge, pages.data()), -1);
  EXPECT_EQ(errno, ENOMEM);
}

TEST(LargeBlocks, NeverOverlapAndKeepWhatIsWritten) {
  struct Live {
    char* begin;
    std::size_t bytes;
    char mark;
  };
  LargeBlocks blocks;
  std::vector<Live> live;
  std::mt19937 random(3);
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  std::size_t freed = 0;
  for (int i = 0; i < 4000; ++i) {
    if (live.empty() || (live.size() < 60 && below(2) == 0)) {
      const std::size_t bytes = kSmall + below(3 * kSmall);
      char* const begin = allocated(blocks, bytes);
      ASSERT_NE(begin, nullptr);
      for (const Live& other : live) ASSERT_TRUE(begin + bytes <= other.begin || other.begin + other.bytes <= begin);
      const char mark = static_cast<char>(1 + below(100));
      for (std::size_t at = 0; at < bytes; at += 4096) begin[at] = mark;
      begin[bytes - 1] = mark;
      live.push_back({begin, bytes, mark});
    } else {
      const std::size_t which = below(live.size());
      const Live block = live[which];
      for (std::size_t at = 0; at < block.bytes; at += 4096) ASSERT_EQ(block.begin[at], block.mark);
      ASSERT_EQ(block.begin[block.bytes - 1], block.mark);
      blocks.free(block.begin, block.bytes);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
      ++freed;
      if (below(4) == 0) blocks.keep_at_most(below(16) * kSmall);
    }
  }
  EXPECT_GT(freed, 1000U);
  for (const Live& block : live) blocks.free(block.begin, block.bytes);
  blocks.keep_at_most(0);
  EXPECT_EQ(blocks.kept(), 0U);
}

TEST(LargeBlocks, NoMemoryIsNull) {
  LargeBlocks blocks;
  EXPECT_EQ(blocks.allocate(std::size_t{1} << 60), nullptr);
}

}  // namespace
}  // namespace trireme
