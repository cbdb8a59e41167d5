#pragma once
// Memory for tables that are read at random: in large pages, where the system has them, so that finding a page costs nothing.
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
    // Less than half of a page is better off in small ones.
    const bool large = n * sizeof(T) >= kPage / 2;
    const std::size_t unit = large ? kPage : std::max(alignof(T), alignof(std::max_align_t));
    const std::size_t bytes = (std::max<std::size_t>(n * sizeof(T), 1) + unit - 1) / unit * unit;
    void* memory = std::aligned_alloc(unit, bytes);
    if (!memory) throw std::bad_alloc();
    if (large) madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: small pages do as well, more slowly
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
