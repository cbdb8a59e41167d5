#pragma once
// Peak tensor memory of this rank, on CPU or GPU.
#include <cstdint>

#include <c10/core/Device.h>

#include "trireme/runtime/process_setup.hpp"

namespace trireme {

class DeviceMemory {
 public:
  /// On the CPU as counted by `process`, which must outlive it; on a GPU by the caching allocator.
  DeviceMemory(at::Device device, const ProcessSetup& process);
  /// Peak bytes of tensors since the last call; 0 if they are not counted.
  std::int64_t take_peak();

 private:
  const at::Device device_;
  const CountedMemory* counted_;  // nullptr on a GPU
};

}  // namespace trireme
