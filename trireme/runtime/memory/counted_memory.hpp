#pragma once
// Counts the bytes of CPU tensors: currently allocated, by purpose, and the peak.
#include <array>
#include <cstdint>

#include "trireme/base/memory_kind.hpp"

namespace trireme {

/// While an instance exists, every CPU allocation of libtorch is counted, for all threads together; large ones are
/// served by LargeBlocks, which caches freed blocks: with the live ones up to a tenth above the peak, or 64 MiB. One
/// instance at a time, created before other threads allocate; tensors may outlive it.
class CountedMemory {
 public:
  CountedMemory();
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

  /// Allocated since construction and not yet freed.
  std::int64_t alive() const;
  std::int64_t alive(MemoryKind kind) const;
  /// The peak since construction, or since forget_peak().
  std::int64_t peak() const;
  void forget_peak() const;
};

}  // namespace trireme
