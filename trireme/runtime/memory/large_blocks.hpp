#pragma once
// Caching allocator for large blocks: cut from mapped memory, whose pages are kept for a while after a block is freed.
// A training step frees and allocates the same sizes over and over. An allocator that returns memory to the system in
// between gets it back page by page, zero-filled (6 % of a step); one that holds it until some time has passed takes up
// to a third more than is in use. Neighbours that are free serve a larger block together: blocks of equal sizes alone
// would keep half as much again for a model whose forward and backward need different sizes.
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace trireme {

/// Not thread-safe.
class LargeBlocks {
 public:
  static constexpr std::size_t kLeast = std::size_t{256} << 10;  // minimum size
  static constexpr std::size_t kPage = std::size_t{64} << 10;    // sizes are rounded up to it

  LargeBlocks() = default;
  /// All blocks must be free.
  ~LargeBlocks();
  LargeBlocks(const LargeBlocks&) = delete;
  LargeBlocks& operator=(const LargeBlocks&) = delete;

  /// From the smallest free space that is large enough; with huge pages if the system has them. Null if out of memory.
  void* allocate(std::size_t bytes);
  void free(void* block, std::size_t bytes);
  /// Returns pages of free ranges to the system, those that were freed first; with 0 also addresses.
  void keep_at_most(std::size_t bytes);
  /// Bytes of free ranges that still have their pages.
  std::size_t kept() const { return kept_; }

 private:
  struct Range {
    std::size_t bytes;
    bool has_pages;
    std::uint64_t freed_at;  // if it has pages
  };
  struct Space {
    char* begin;
    std::size_t bytes;
  };

  bool map_more(std::size_t bytes);
  /// Unmaps what is free as a whole.
  void unmap_free();
  void add(char* begin, Range range);
  /// Removes an interval of free ranges.
  void take(Space space);
  /// The smallest space of consecutive free ranges with enough bytes; without a begin: there is none.
  Space smallest_space(std::size_t bytes) const;
  /// How much of an interval of free ranges has pages.
  std::size_t pages_in(Space space) const;
  /// The interval of free ranges without pages that surrounds this one, within its huge pages.
  Space with_rest_of_huge_pages(Space space) const;

  std::vector<Space> mappings_;
  std::map<char*, Range> free_;  // by address; neighbours without pages are one
  std::size_t kept_ = 0;
  std::uint64_t frees_ = 0;
};

}  // namespace trireme
