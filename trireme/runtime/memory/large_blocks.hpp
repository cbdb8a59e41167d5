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

  /// From the smallest free range that is large enough; with huge pages if the system has them. Null if out of memory.
  void* allocate(std::size_t bytes);
  void free(void* block, std::size_t bytes);
  /// Returns pages of free ranges to the system, those that were freed first.
  void keep_at_most(std::size_t bytes);
  /// Bytes of free ranges that still have their pages.
  std::size_t kept() const { return kept_; }

 private:
  /// Free and without a free neighbour of its kind.
  struct Range {
    std::size_t bytes;
    bool has_pages;
    std::uint64_t freed_at;
  };
  using Ranges = std::map<char*, Range>;
  struct Mapping {
    char* begin;
    std::size_t bytes;
  };

  bool map_more(std::size_t bytes);
  void add(char* begin, Range range);
  /// The first of the consecutive free ranges that together are the smallest with enough bytes.
  Ranges::iterator smallest_run(std::size_t bytes);

  std::vector<Mapping> mappings_;
  Ranges free_;  // by address
  std::size_t kept_ = 0;
  std::uint64_t frees_ = 0;
};

}  // namespace trireme
