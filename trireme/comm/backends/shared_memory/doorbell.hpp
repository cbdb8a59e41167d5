#pragma once
// Where a rank sleeps until another process of its host has something for it.
#include <atomic>
#include <chrono>
#include <cstdint>

namespace trireme {

/// In shared memory, zero-initialized; one per rank.
struct Doorbell {
  std::atomic<std::uint32_t> rings;
  std::atomic<std::uint32_t> sleepers;

  /// Wakes the threads that sleep here; a system call only if there are some.
  void ring();
  /// Returns at once if it has rung since `seen` was read from `rings`.
  void sleep(std::uint32_t seen, std::chrono::nanoseconds at_most);
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace trireme
