#pragma once
// A stream of bytes in shared memory, from one process to one or several readers: a ring with a cursor for each.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme {

// Note [Cursors]
// Positions count all bytes since the start and never go back. The writer owns `written`, and each reader its own
// cursor; both are published after the bytes were copied (release) and read before they are used (acquire). A process
// that is killed between the two has published nothing. A reader that skips bytes may be ahead of the writer.

/// Of the writer, or of one reader, on a cache line of its own.
struct alignas(64) StreamCursor {
  std::atomic<std::uint64_t> position;
  std::atomic<std::uint32_t> wants_room;  // of the writer: it waits for readers
};

/// A view of one stream; trivially copied.
class ByteStream {
 public:
  /// `cursors`: the writer's, then one per reader. `capacity`: a power of two.
  ByteStream(StreamCursor* cursors, int readers, std::byte* ring, std::size_t capacity)
      : cursors_(cursors), readers_(readers), ring_(ring), capacity_(capacity) {}

  static std::size_t cursor_bytes(int readers) {
    return sizeof(StreamCursor) * (1 + static_cast<std::size_t>(readers));
  }

  std::size_t capacity() const { return capacity_; }

  // The writer:
  std::size_t room() const;
  /// Copies as much as there is room for, and publishes it; returns the number of bytes.
  std::size_t write(std::span<const std::byte> bytes);
  /// True if the ring is full, after the readers have been asked to ring the writer's bell.
  bool waits_for_room();
  /// Whether this reader is what the writer waits for.
  bool is_slow(int reader) const;

  // Reader number `reader`:
  std::size_t available(int reader) const;
  /// The next bytes that lie in one piece, at most available().
  std::span<const std::byte> peek(int reader) const;
  /// Copies the next available bytes; they remain.
  void copy_next(int reader, std::span<std::byte> to) const;
  /// Also beyond what is available. Returns true if the writer waits for it.
  [[nodiscard]] bool consume(int reader, std::size_t bytes);
  /// The writer is this reader itself: it never holds the ring up.
  void exclude(int reader) { cursor(reader).position = UINT64_MAX / 2; }

 private:
  StreamCursor& writer() const { return cursors_[0]; }
  StreamCursor& cursor(int reader) const { return cursors_[1 + reader]; }

  StreamCursor* cursors_;
  int readers_;
  std::byte* ring_;
  std::size_t capacity_;
};

}  // namespace trireme
