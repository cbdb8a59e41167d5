#include "trireme/runtime/memory/large_blocks.hpp"

#include <cstdint>

#include <sys/mman.h>

namespace trireme {
namespace {

constexpr std::size_t kPage = std::size_t{64}
                              << 10;  // a multiple of every system's: arm64 has pages of 4, 16 or 64 KiB
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t up_to(std::size_t x, std::size_t multiple) { return (x + multiple - 1) / multiple * multiple; }

void* from_system(std::size_t bytes) {
  bytes = up_to(bytes, kPage);
  const std::size_t more = bytes >= kHugePage ? kHugePage : 0;  // room to align to a huge page
  void* const all = mmap(nullptr, bytes + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  if (more == 0) return all;
  char* const begin = static_cast<char*>(all);
  const std::size_t before =
      up_to(reinterpret_cast<std::uintptr_t>(all), kHugePage) - reinterpret_cast<std::uintptr_t>(all);
  if (before > 0) munmap(begin, before);
  if (more > before) munmap(begin + before + bytes, more - before);
  madvise(begin + before, bytes, MADV_HUGEPAGE);  // only a hint: normal pages also work
  return begin + before;
}

}  // namespace

void* LargeBlocks::allocate(std::size_t bytes) {
  const auto found = by_size_.find(bytes);
  if (found == by_size_.end()) return from_system(bytes);
  const Blocks::iterator block = found->second.back();
  found->second.pop_back();
  if (found->second.empty()) by_size_.erase(found);
  void* const memory = block->memory;
  blocks_.erase(block);
  kept_ -= bytes;
  return memory;
}

void LargeBlocks::free(void* block, std::size_t bytes) {
  by_size_[bytes].push_back(blocks_.insert(blocks_.end(), {block, bytes}));
  kept_ += bytes;
}

void LargeBlocks::keep_at_most(std::size_t bytes) {
  while (kept_ > bytes) {
    const Block oldest = blocks_.front();
    blocks_.pop_front();
    const auto found = by_size_.find(oldest.bytes);
    found->second.erase(found->second.begin());
    if (found->second.empty()) by_size_.erase(found);
    kept_ -= oldest.bytes;
    munmap(oldest.memory, up_to(oldest.bytes, kPage));
  }
}

}  // namespace trireme
