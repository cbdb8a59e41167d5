#pragma once
// Bytes of CPU tensors: how many are alive, and how many were at most. For tests and benchmarks.
#include <cstdint>

namespace trireme {

/// While one lives, every allocation of libtorch on the CPU is counted, those of all threads together. One at a time,
/// and made before other threads allocate; tensors may outlive it.
class CountedMemory {
 public:
  CountedMemory();
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

  /// Allocated since it was made and not freed.
  std::int64_t alive() const;
  /// The most that was alive since it was made, or since forget_peak().
  std::int64_t peak() const;
  void forget_peak() const;
};

}  // namespace trireme
