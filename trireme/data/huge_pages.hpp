#pragma once
// Memory for tables that are read at random: in large pages, where the system has them, so that finding a page costs nothing.
#include <cstdlib>
#include <new>
#include <vector>

#include <sys/mman.h>

namespace trireme {

template <class T>
struct HugePages {
  using value_type = T;
  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>&) {}  // NOLINT: allocators convert

  T* allocate(std::size_t n) {
    const std::size_t bytes = (n * sizeof(T) + kPage - 1) / kPage * kPage;
    void* memory = std::aligned_alloc(kPage, bytes);
    if (!memory) throw std::bad_alloc();
    madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: small pages do as well, more slowly
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

}  // namespace trireme
