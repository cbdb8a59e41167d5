#pragma once
// What the tensors of this rank take, on whatever device it computes.
#include <cstdint>
#include <optional>

#include <c10/core/Device.h>

#include "trireme/runtime/memory/counted_memory.hpp"

namespace trireme {

class DeviceMemory {
 public:
  /// On the CPU from now on; on a GPU as its caching allocator counts.
  explicit DeviceMemory(at::Device device);
  /// The most bytes of tensors at a time since the last call.
  std::int64_t take_peak();

 private:
  const at::Device device_;
  std::optional<CountedMemory> counted_;
};

}  // namespace trireme
