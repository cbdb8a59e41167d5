#pragma once
// The shared memory of one group: a stream from each rank to all others, and one for each pair of ranks.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "trireme/base/shared_memory.hpp"
#include "trireme/comm/backends/shared_memory/byte_stream.hpp"

namespace trireme {

class GroupMemory {
 public:
  /// The bytes that a group of `ranks` maps. Pages take memory once they have been written: for 2 ranks at most 10 MiB,
  /// for 8 at most 64.
  static std::size_t bytes(int ranks);
  GroupMemory(SharedMemory memory, int rank, int ranks);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// From `from` to all others, each of which is a reader with its own number.
  ByteStream outbox(int from) const;
  /// Messages; the reader's number is 0.
  ByteStream pair(int from, int to) const;

  /// This rank makes no more calls.
  void leave() { left(rank_).store(1); }
  bool has_left(int rank) const { return left(rank).load() != 0; }
  /// Descriptor for the other ranks, until close_fd().
  const SharedMemory& memory() const { return memory_; }
  void close_fd() { memory_.close_fd(); }

 private:
  struct alignas(64) Flag {
    std::atomic<std::uint32_t> value;
  };
  struct Offsets {
    std::size_t outbox_cursors, pair_cursors, outboxes, pairs, end;
  };
  static Offsets offsets(int ranks);
  static std::size_t outbox_capacity(int ranks) { return std::size_t{ranks <= 16 ? 1024U : 256U} << 10; }
  static std::size_t pair_capacity(int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    return std::bit_floor(std::min((std::size_t{64} << 20) / (n * n), std::size_t{4} << 20));
  }
  std::atomic<std::uint32_t>& left(int rank) const { return reinterpret_cast<Flag*>(memory_.data())[rank].value; }

  SharedMemory memory_;
  int rank_, ranks_;
};

}  // namespace trireme
