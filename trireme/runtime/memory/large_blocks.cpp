#include "trireme/runtime/memory/large_blocks.hpp"

#include <algorithm>
#include <iterator>

#include <sys/mman.h>

namespace trireme {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
// Mappings grow with what is mapped already: they count where address space is limited or nothing is overcommitted.
constexpr std::size_t kSmallestMapping = std::size_t{64} << 20, kLargestMapping = std::size_t{1} << 30;

// Pages of the system are of 4, 16 or 64 KiB.
static_assert(LargeBlocks::kPage % (std::size_t{64} << 10) == 0 && kHugePage % LargeBlocks::kPage == 0);

std::size_t up_to(std::size_t x, std::size_t multiple) { return (x + multiple - 1) / multiple * multiple; }

/// How far it is into its huge page.
std::size_t into_huge_page(const char* address) { return reinterpret_cast<std::uintptr_t>(address) % kHugePage; }

/// Mapped memory at a multiple of a huge page, or null.
char* from_system(std::size_t bytes) {
  void* const mapped = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* const all = static_cast<char*>(mapped);
  const std::size_t before = (kHugePage - into_huge_page(all)) % kHugePage;
  if (before > 0) munmap(all, before);
  munmap(all + before + bytes, kHugePage - before);
  madvise(all + before, bytes, MADV_HUGEPAGE);  // only a hint: normal pages also work
  return all + before;
}

}  // namespace

LargeBlocks::~LargeBlocks() {
  for (const Space& mapping : mappings_) munmap(mapping.begin, mapping.bytes);
}

bool LargeBlocks::map_more(std::size_t bytes) {
  std::size_t mapped = 0;
  for (const Space& mapping : mappings_) mapped += mapping.bytes;
  const std::size_t least = up_to(bytes, kHugePage);
  for (const std::size_t size : {std::max(least, std::clamp(mapped, kSmallestMapping, kLargestMapping)), least}) {
    char* const begin = from_system(size);
    if (begin == nullptr) continue;
    mappings_.push_back({begin, size});
    add(begin, {.bytes = size, .has_pages = false, .freed_at = 0});
    return true;
  }
  return false;
}

void LargeBlocks::unmap_free() {
  std::erase_if(mappings_, [this](const Space& mapping) {
    char* end = mapping.begin;
    auto it = free_.upper_bound(mapping.begin);
    if (it != free_.begin() && std::prev(it)->first + std::prev(it)->second.bytes > mapping.begin) --it;
    for (; it != free_.end() && it->first <= end; ++it) end = it->first + it->second.bytes;
    if (end < mapping.begin + mapping.bytes) return false;
    take(mapping);
    munmap(mapping.begin, mapping.bytes);
    return true;
  });
}

void LargeBlocks::add(char* begin, Range range) {
  auto next = free_.lower_bound(begin);
  if (!range.has_pages) {
    if (next != free_.end() && begin + range.bytes == next->first && !next->second.has_pages) {
      range.bytes += next->second.bytes;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second.bytes == begin && !before->second.has_pages) {
        before->second.bytes += range.bytes;
        return;
      }
    }
  }
  free_.emplace_hint(next, begin, range);
}

void LargeBlocks::take(Space space) {
  char* const end = space.begin + space.bytes;
  auto it = std::prev(free_.upper_bound(space.begin));
  while (it != free_.end() && it->first < end) {
    const auto [begin, range] = *it;
    char* const range_end = begin + range.bytes;
    it = free_.erase(it);
    if (begin < space.begin)
      free_.emplace_hint(it, begin,
                         Range{static_cast<std::size_t>(space.begin - begin), range.has_pages, range.freed_at});
    if (range_end > end)
      free_.emplace_hint(it, end, Range{static_cast<std::size_t>(range_end - end), range.has_pages, range.freed_at});
    if (range.has_pages) kept_ -= static_cast<std::size_t>(std::min(range_end, end) - std::max(begin, space.begin));
  }
}

LargeBlocks::Space LargeBlocks::smallest_space(std::size_t bytes) const {
  Space best{.begin = nullptr, .bytes = 0};
  for (auto it = free_.begin(); it != free_.end();) {
    char* const begin = it->first;
    const char* end = begin;
    for (; it != free_.end() && it->first == end; ++it) end += it->second.bytes;
    const auto found = static_cast<std::size_t>(end - begin);
    if (found >= bytes && (best.begin == nullptr || found < best.bytes)) best = {.begin = begin, .bytes = found};
  }
  return best;
}

std::size_t LargeBlocks::pages_in(Space space) const {
  const char* const end = space.begin + space.bytes;
  std::size_t bytes = 0;
  for (auto it = std::prev(free_.upper_bound(space.begin)); it != free_.end() && it->first < end; ++it)
    if (it->second.has_pages)
      bytes += static_cast<std::size_t>(std::min<const char*>(it->first + it->second.bytes, end) -
                                        std::max<const char*>(it->first, space.begin));
  return bytes;
}

void* LargeBlocks::allocate(std::size_t bytes) {
  bytes = up_to(bytes, kPage);
  Space space = smallest_space(bytes);
  if (space.begin == nullptr) {
    if (!map_more(bytes)) {
      unmap_free();
      if (!map_more(bytes)) return nullptr;
    }
    space = smallest_space(bytes);
  }
  // The end that has more pages.
  const Space front{space.begin, bytes}, back{space.begin + (space.bytes - bytes), bytes};
  const Space block = pages_in(back) > pages_in(front) ? back : front;
  take(block);
  return block.begin;
}

void LargeBlocks::free(void* block, std::size_t bytes) {
  bytes = up_to(bytes, kPage);
  kept_ += bytes;
  add(static_cast<char*>(block), {.bytes = bytes, .has_pages = true, .freed_at = ++frees_});
}

LargeBlocks::Space LargeBlocks::with_rest_of_huge_pages(Space space) const {
  char *begin = space.begin, *end = space.begin + space.bytes;
  const auto next = free_.lower_bound(begin);
  if (next != free_.begin()) {
    const auto& [at, range] = *std::prev(next);
    if (at + range.bytes == begin && !range.has_pages) begin = std::max(at, begin - into_huge_page(begin));
  }
  if (const auto after = free_.find(end); after != free_.end() && !after->second.has_pages)
    end += std::min(after->second.bytes, (kHugePage - into_huge_page(end)) % kHugePage);
  return {.begin = begin, .bytes = static_cast<std::size_t>(end - begin)};
}

void LargeBlocks::keep_at_most(std::size_t bytes) {
  while (kept_ > bytes) {
    auto oldest = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it)
      if (it->second.has_pages && (oldest == free_.end() || it->second.freed_at < oldest->second.freed_at)) oldest = it;
    // From its end, by whole huge pages.
    char* const end = oldest->first + oldest->second.bytes;
    const std::size_t excess = std::min(oldest->second.bytes, kept_ - bytes);
    const std::size_t more = into_huge_page(end - excess);
    const std::size_t released = excess + more > oldest->second.bytes ? oldest->second.bytes : excess + more;
    const Space space{.begin = end - released, .bytes = released};
    take(space);
    const Space whole = with_rest_of_huge_pages(space);
    madvise(whole.begin, whole.bytes, MADV_DONTNEED);
    add(space.begin, {.bytes = released, .has_pages = false, .freed_at = 0});
  }
  if (bytes == 0) unmap_free();
}

}  // namespace trireme
