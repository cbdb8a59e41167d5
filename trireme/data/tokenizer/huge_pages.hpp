#pragma once
// An allocator with huge pages, if available, for large tables with random access: avoids TLB misses.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

#include <sys/mman.h>

namespace trireme::data {

template <class T>
struct HugePages {
  using value_type = T;
  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>&) {}  // NOLINT: allocators convert

  T* allocate(std::size_t n) {
    // Tables below half a huge page use normal pages.
    const bool large = n * sizeof(T) >= kPage / 2;
    const std::size_t unit = large ? kPage : std::max(alignof(T), alignof(std::max_align_t));
    const std::size_t bytes = (std::max<std::size_t>(n * sizeof(T), 1) + unit - 1) / unit * unit;
    void* memory = std::aligned_alloc(unit, bytes);
    if (!memory) throw std::bad_alloc();
    if (large) madvise(memory, bytes, MADV_HUGEPAGE);  // only a hint: normal pages also work, but slower
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { std::free(memory); }
  template <class U>
  bool operator==(const HugePages<U>&) const {
    return true;
  }

 private:
  static constexpr std::size_t kPage = std::size_t{1} << 21;
};

template <class T>
using HugeVector = std::vector<T, HugePages<T>>;

}  // namespace trireme::data
