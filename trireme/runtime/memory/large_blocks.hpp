#pragma once
// Caching allocator for large blocks: mapped from the system and kept for a while after they are freed. A training step
// frees and allocates the same sizes over and over. An allocator that returns memory to the system in between gets it
// back page by page, zero-filled (6 % of a step); one that holds it until some time has passed takes up to a third more
// than is in use.
#include <cstddef>
#include <list>
#include <unordered_map>
#include <vector>

namespace trireme {

/// Not thread-safe.
class LargeBlocks {
 public:
  static constexpr std::size_t kLeast = std::size_t{256} << 10;  // minimum size

  LargeBlocks() = default;
  ~LargeBlocks() { keep_at_most(0); }
  LargeBlocks(const LargeBlocks&) = delete;
  LargeBlocks& operator=(const LargeBlocks&) = delete;

  /// A cached block of exactly this size, the most recently freed one, or a new one: with huge pages if the system has
  /// them. Null if out of memory.
  void* allocate(std::size_t bytes);
  void free(void* block, std::size_t bytes);
  /// Whether a block of this size is cached.
  bool has(std::size_t bytes) const { return by_size_.contains(bytes); }
  /// Releases the oldest cached blocks.
  void keep_at_most(std::size_t bytes);
  std::size_t kept() const { return kept_; }

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
  };
  using Blocks = std::list<Block>;

  Blocks blocks_;  // cached blocks, oldest first
  std::unordered_map<std::size_t, std::vector<Blocks::iterator>> by_size_;
  std::size_t kept_ = 0;
};

}  // namespace trireme
