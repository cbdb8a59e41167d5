#pragma once
// Large blocks of memory, straight from the system and kept for a while when they are freed. A training step frees and
// asks for the same sizes over and over. An allocator that gives memory back to the system in between gets it again page
// by page, filled with zeros (6 % of a step); one that holds it back until some time has passed takes up to a third more
// than what is alive.
#include <cstddef>
#include <list>
#include <unordered_map>
#include <vector>

namespace trireme {

/// Not thread-safe.
class LargeBlocks {
 public:
  static constexpr std::size_t kLeast = std::size_t{256} << 10;  // what is worth it

  LargeBlocks() = default;
  ~LargeBlocks() { keep_at_most(0); }
  LargeBlocks(const LargeBlocks&) = delete;
  LargeBlocks& operator=(const LargeBlocks&) = delete;

  /// A kept block of exactly so many bytes, the one that came last, or a new one: of huge pages where the system has
  /// them. Null when there is no memory.
  void* allocate(std::size_t bytes);
  void free(void* block, std::size_t bytes);
  /// Whether a block of so many bytes is kept.
  bool has(std::size_t bytes) const { return by_size_.contains(bytes); }
  /// Gives back what has been kept longest.
  void keep_at_most(std::size_t bytes);
  std::size_t kept() const { return kept_; }

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
  };
  using Blocks = std::list<Block>;

  Blocks blocks_;  // what is kept, the oldest first
  std::unordered_map<std::size_t, std::vector<Blocks::iterator>> by_size_;
  std::size_t kept_ = 0;
};

}  // namespace trireme
