#include "trireme/comm/backends/shared_memory/byte_stream.hpp"

#include <algorithm>

#include "trireme/base/copy_bytes.hpp"

namespace trireme {

std::size_t ByteStream::room() const {
  const std::uint64_t written = writer().position.load(std::memory_order_relaxed);
  std::uint64_t slowest = written;
  for (int r = 0; r < readers_; ++r) slowest = std::min(slowest, cursor(r).position.load());
  return capacity_ - static_cast<std::size_t>(written - slowest);
}

bool ByteStream::is_slow(int reader) const {
  const std::uint64_t written = writer().position.load(std::memory_order_relaxed);
  const std::uint64_t read = cursor(reader).position.load(std::memory_order_acquire);
  return read < written && written - read == capacity_;
}

std::size_t ByteStream::write(std::span<const std::byte> bytes) {
  const std::size_t n = std::min(bytes.size(), room());
  const std::uint64_t at = writer().position.load(std::memory_order_relaxed);
  const std::size_t begin = at % capacity_, until_end = std::min(n, capacity_ - begin);
  copy_bytes(ring_ + begin, bytes.data(), until_end);
  copy_bytes(ring_, bytes.data() + until_end, n - until_end);
  writer().position.store(at + n, std::memory_order_release);
  return n;
}

bool ByteStream::waits_for_room() {
  if (room() > 0) return false;
  writer().wants_room.store(1);
  return room() == 0;  // a reader that came in between has not seen the flag
}

std::size_t ByteStream::available(int reader) const {
  const std::uint64_t written = writer().position.load(std::memory_order_acquire);
  const std::uint64_t read = cursor(reader).position.load(std::memory_order_relaxed);
  return written > read ? static_cast<std::size_t>(written - read) : 0;
}

std::span<const std::byte> ByteStream::peek(int reader) const {
  const std::size_t begin = cursor(reader).position.load(std::memory_order_relaxed) % capacity_;
  return {ring_ + begin, std::min(available(reader), capacity_ - begin)};
}

void ByteStream::copy_next(int reader, std::span<std::byte> to) const {
  const std::size_t begin = cursor(reader).position.load(std::memory_order_relaxed) % capacity_;
  const std::size_t until_end = std::min(to.size(), capacity_ - begin);
  copy_bytes(to.data(), ring_ + begin, until_end);
  copy_bytes(to.data() + until_end, ring_, to.size() - until_end);
}

bool ByteStream::consume(int reader, std::size_t bytes) {
  StreamCursor& mine = cursor(reader);
  mine.position.store(mine.position.load(std::memory_order_relaxed) + bytes);
  return writer().wants_room.load() != 0 && writer().wants_room.exchange(0) != 0;
}

}  // namespace trireme
