#include "trireme/runtime/memory/large_blocks.hpp"

#include <algorithm>
#include <iterator>

#include <sys/mman.h>

namespace trireme {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kMapping = std::size_t{1} << 30;  // takes addresses, no memory

// Pages of the system are of 4, 16 or 64 KiB.
static_assert(LargeBlocks::kPage % (std::size_t{64} << 10) == 0 && kHugePage % LargeBlocks::kPage == 0);

std::size_t up_to(std::size_t x, std::size_t multiple) { return (x + multiple - 1) / multiple * multiple; }

}  // namespace

LargeBlocks::~LargeBlocks() {
  for (const Mapping& mapping : mappings_) munmap(mapping.begin, mapping.bytes);
}

bool LargeBlocks::map_more(std::size_t bytes) {
  // The smaller one for a process whose address space is limited.
  for (const std::size_t size : {std::max(up_to(bytes, kHugePage), kMapping), up_to(bytes, kHugePage)}) {
    void* const mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) continue;
    madvise(mapped, size, MADV_HUGEPAGE);  // only a hint: normal pages also work
    char* const begin = static_cast<char*>(mapped);
    mappings_.push_back({begin, size});
    add(begin, {.bytes = size, .has_pages = false, .freed_at = 0});
    return true;
  }
  return false;
}

void LargeBlocks::add(char* begin, Range range) {
  const auto like = [&](const Range& other) { return other.has_pages == range.has_pages; };
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && begin + range.bytes == next->first && like(next->second)) {
    range.bytes += next->second.bytes;
    range.freed_at = std::max(range.freed_at, next->second.freed_at);
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes == begin && like(before->second)) {
      before->second.bytes += range.bytes;
      before->second.freed_at = std::max(range.freed_at, before->second.freed_at);
      return;
    }
  }
  free_.emplace_hint(next, begin, range);
}

LargeBlocks::Ranges::iterator LargeBlocks::smallest_run(std::size_t bytes) {
  auto best = free_.end();
  std::size_t best_bytes = 0;
  for (auto it = free_.begin(); it != free_.end();) {
    const auto first = it;
    const char* end = first->first;
    for (; it != free_.end() && it->first == end; ++it) end += it->second.bytes;
    const auto run = static_cast<std::size_t>(end - first->first);
    if (run < bytes || (best != free_.end() && run >= best_bytes)) continue;
    best = first;
    best_bytes = run;
  }
  return best;
}

void* LargeBlocks::allocate(std::size_t bytes) {
  bytes = up_to(bytes, kPage);
  auto it = smallest_run(bytes);
  if (it == free_.end()) {
    if (!map_more(bytes)) return nullptr;
    it = smallest_run(bytes);
  }
  char* const block = it->first;
  for (std::size_t taken = 0; taken < bytes;) {
    const auto [begin, range] = *it;
    const std::size_t now = std::min(range.bytes, bytes - taken);
    it = free_.erase(it);
    if (range.has_pages) kept_ -= now;
    if (now < range.bytes)
      free_.emplace_hint(it, begin + now, Range{range.bytes - now, range.has_pages, range.freed_at});
    taken += now;
  }
  return block;
}

void LargeBlocks::free(void* block, std::size_t bytes) {
  bytes = up_to(bytes, kPage);
  kept_ += bytes;
  add(static_cast<char*>(block), {.bytes = bytes, .has_pages = true, .freed_at = ++frees_});
}

void LargeBlocks::keep_at_most(std::size_t bytes) {
  while (kept_ > bytes) {
    auto oldest = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it)
      if (it->second.has_pages && (oldest == free_.end() || it->second.freed_at < oldest->second.freed_at)) oldest = it;
    // From its end, and not in many small steps.
    const std::size_t all = oldest->second.bytes;
    const std::size_t released = std::min(all, up_to(kept_ - bytes, kHugePage));
    char* const begin = oldest->first + (all - released);
    madvise(begin, released, MADV_DONTNEED);
    kept_ -= released;
    if (released == all)
      free_.erase(oldest);
    else
      oldest->second.bytes -= released;
    add(begin, {.bytes = released, .has_pages = false, .freed_at = 0});
  }
}

}  // namespace trireme
