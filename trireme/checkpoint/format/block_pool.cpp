#include "trireme/checkpoint/format/block_pool.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "trireme/files/fs.hpp"

namespace trireme::checkpoint {

void BlockPool::Free::operator()(std::byte* memory) const noexcept { std::free(memory); }

BlockPool::BlockPool(std::size_t max_bytes) : max_blocks_(std::max<std::size_t>(1, max_bytes / kBlockBytes)) {}

BlockPool::Block BlockPool::take() {
  std::unique_lock lock(mutex_);
  returned_.wait(lock, [this] { return !free_.empty() || made_ < max_blocks_; });
  if (!free_.empty()) {
    Block block = std::move(free_.back());
    free_.pop_back();
    return block;
  }
  Block block(static_cast<std::byte*>(std::aligned_alloc(files::Fs::kDirectAlign, kBlockBytes)));
  if (block) {
    ++made_;
    return block;
  }
  // With less memory it only takes longer, as long as there is a block that comes back.
  if (made_ == 0) throw std::bad_alloc();
  max_blocks_ = made_;
  returned_.wait(lock, [this] { return !free_.empty(); });
  block = std::move(free_.back());
  free_.pop_back();
  return block;
}

void BlockPool::give_back(Block block) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(block));
  returned_.notify_one();
}

std::size_t BlockPool::most_bytes() const {
  const std::lock_guard lock(mutex_);
  return made_ * kBlockBytes;
}

}  // namespace trireme::checkpoint
