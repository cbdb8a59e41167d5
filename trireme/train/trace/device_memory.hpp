#pragma once
// Peak tensor memory of this rank, on CPU or GPU.
#include <array>
#include <cstdint>

#include <c10/core/Device.h>

#include "trireme/runtime/process_setup.hpp"

namespace trireme {

/// Bytes of tensors at one moment.
struct MemorySample {
  std::int64_t ns = 0;  // steady_ns()
  std::int64_t allocated = 0;
  std::array<std::int64_t, kMemoryKinds> by_kind{};  // all zero on a GPU, where purposes are not counted
};

class DeviceMemory {
 public:
  /// On the CPU as counted by `process`, which must outlive it; on a GPU by the caching allocator.
  DeviceMemory(at::Device device, const ProcessSetup& process);
  /// Peak bytes of tensors since the last call; 0 if they are not counted.
  std::int64_t take_peak();
  /// All zero if they are not counted.
  MemorySample sample() const;

 private:
  const at::Device device_;
  const CountedMemory* counted_;  // nullptr on a GPU
};

}  // namespace trireme
