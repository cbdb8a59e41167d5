#include "trireme/train/trace/device_memory.hpp"

#include <c10/core/CachingDeviceAllocator.h>

#include "trireme/base/stopwatch.hpp"

namespace trireme {

DeviceMemory::DeviceMemory(at::Device device, const ProcessSetup& process)
    : device_(device), counted_(device.is_cpu() ? process.cpu_memory() : nullptr) {}

std::int64_t DeviceMemory::take_peak() {
  if (counted_) {
    const std::int64_t peak = counted_->peak();
    counted_->forget_peak();
    return peak;
  }
  if (device_.is_cpu()) return 0;
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device_.type());
  const auto stats = allocator->getDeviceStats(device_.index());
  allocator->resetPeakStats(device_.index());
  return stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}

MemorySample DeviceMemory::sample() const {
  MemorySample now{.ns = steady_ns()};
  if (counted_) {
    now.allocated = counted_->alive();
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
      now.by_kind[kind] = counted_->alive(static_cast<MemoryKind>(kind));
  } else if (!device_.is_cpu()) {
    const auto stats = c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index());
    now.allocated = stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].current;
  }
  return now;
}

}  // namespace trireme
