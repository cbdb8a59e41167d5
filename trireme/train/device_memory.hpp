#pragma once
// What the tensors of this rank take, on whatever device it computes.
#include <cstdint>

#include <c10/core/Device.h>

#include "trireme/runtime/process_setup.hpp"

namespace trireme {

class DeviceMemory {
 public:
  /// On the CPU as `process` counts, which must outlive it; on a GPU as its caching allocator does.
  DeviceMemory(at::Device device, const ProcessSetup& process);
  /// The most bytes of tensors at a time since the last call; 0 where nobody counts.
  std::int64_t take_peak();

 private:
  const at::Device device_;
  const CountedMemory* counted_;  // nullptr on a GPU
};

}  // namespace trireme
