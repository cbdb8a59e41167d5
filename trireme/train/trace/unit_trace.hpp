#pragma once
// Notes when forward and backward enter and leave the units of a model, for a trace of the step.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/nn/unit.hpp"
#include "trireme/train/trace/device_clock.hpp"
#include "trireme/train/trace/device_memory.hpp"

namespace trireme {

/// Times are those of steady_ns().
struct UnitEvent {
  enum class Kind { forward_begin, forward_end, backward_begin };
  Kind kind;
  std::size_t unit = 0;
  std::int64_t ns = 0;
};

/// For all chunks of a rank.
class UnitTrace {
 public:
  UnitTrace();
  ~UnitTrace();

  /// Hooks for one chunk that pass every call on to `hooks`, which must outlive them.
  UnitHooks& around(UnitHooks& hooks, const UnitPlan& plan);

  /// Whether libtorch's profiler is told of the units, as annotations around their forward.
  void annotate(bool on) { annotates_ = on; }

  /// From now on events, and the memory at each of them, are noted, without those of before, and the device is marked.
  /// Both must outlive it.
  void start(const DeviceMemory& memory, DeviceClock& clock);
  /// Stops, and returns the events.
  std::vector<UnitEvent> take();
  std::vector<MemorySample> take_memory();
  /// The name of each unit, as a path: "layers.3".
  const std::vector<std::string>& names() const { return names_; }

 private:
  class Hooks;

  std::vector<std::unique_ptr<Hooks>> chunks_;
  std::vector<std::string> names_;
  const DeviceMemory* memory_ = nullptr;  // nullptr: off
  DeviceClock* clock_ = nullptr;          // with memory_
  bool annotates_ = false;
  std::vector<UnitEvent> events_;
  std::vector<MemorySample> samples_;
};

}  // namespace trireme
