#pragma once
// Aligned memory in blocks of one size, at most a given amount of it: what a background writer may hold.
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace trireme::checkpoint {

class BlockPool {
 public:
  static constexpr std::size_t kBlockBytes = std::size_t{4} << 20;

  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  using Block = std::unique_ptr<std::byte[], Free>;  // kBlockBytes, aligned for direct I/O

  /// At least one block.
  explicit BlockPool(std::size_t max_bytes);

  /// Waits until there is one; std::bad_alloc if there is no memory for the first. Blocks are reused: new memory costs
  /// more time than the copy into it.
  Block take();
  void give_back(Block block);

  /// The most that was held at a time.
  std::size_t most_bytes() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<Block> free_;
  std::size_t max_blocks_, made_ = 0;
};

}  // namespace trireme::checkpoint
