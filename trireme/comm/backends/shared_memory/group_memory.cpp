#include "trireme/comm/backends/shared_memory/group_memory.hpp"

namespace trireme {

GroupMemory::Offsets GroupMemory::offsets(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  Offsets at{};
  at.outbox_cursors = n * sizeof(Flag);
  at.pair_cursors = at.outbox_cursors + n * ByteStream::cursor_bytes(ranks);
  const std::size_t page = 4096, cursors = at.pair_cursors + n * n * ByteStream::cursor_bytes(1);
  at.outboxes = (cursors + page - 1) / page * page;
  at.pairs = at.outboxes + n * outbox_capacity(ranks);
  at.end = at.pairs + n * n * pair_capacity(ranks);
  return at;
}

std::size_t GroupMemory::bytes(int ranks) { return offsets(ranks).end; }

GroupMemory::GroupMemory(SharedMemory memory, int rank, int ranks)
    : memory_(std::move(memory)), rank_(rank), ranks_(ranks) {
  outbox(rank).exclude(rank);
}

ByteStream GroupMemory::outbox(int from) const {
  const Offsets at = offsets(ranks_);
  const auto i = static_cast<std::size_t>(from);
  std::byte* cursors = memory_.data() + at.outbox_cursors + i * ByteStream::cursor_bytes(ranks_);
  return {reinterpret_cast<StreamCursor*>(cursors), ranks_, memory_.data() + at.outboxes + i * outbox_capacity(ranks_),
          outbox_capacity(ranks_)};
}

ByteStream GroupMemory::pair(int from, int to) const {
  const Offsets at = offsets(ranks_);
  const std::size_t i =
      static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(to);
  std::byte* cursors = memory_.data() + at.pair_cursors + i * ByteStream::cursor_bytes(1);
  return {reinterpret_cast<StreamCursor*>(cursors), 1, memory_.data() + at.pairs + i * pair_capacity(ranks_),
          pair_capacity(ranks_)};
}

}  // namespace trireme
