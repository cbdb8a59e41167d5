#pragma once
// Bytes of tensors: how many are alive, what for, and how many were at most.
#include <array>
#include <cstdint>

#include "trireme/base/memory_kind.hpp"

namespace trireme {

/// While one lives, every allocation of libtorch on the CPU is counted, those of all threads together; large ones are
/// made by LargeBlocks, which keeps what is freed, up to a tenth above the peak, for who asks next. One at a time, and made before other
/// threads allocate; tensors may outlive it.
class CountedMemory {
 public:
  CountedMemory();
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

  /// Allocated since it was made and not freed.
  std::int64_t alive() const;
  std::int64_t alive(MemoryKind kind) const;
  /// The most that was alive since it was made, or since forget_peak().
  std::int64_t peak() const;
  void forget_peak() const;
};

}  // namespace trireme
