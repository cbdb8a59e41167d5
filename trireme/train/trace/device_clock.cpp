#include "trireme/train/trace/device_clock.hpp"

#include <algorithm>
#include <cmath>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "trireme/base/stopwatch.hpp"

namespace trireme {

std::int64_t device_time(const std::vector<DeviceMark>& marks, std::int64_t host_ns) {
  const auto mark = std::ranges::lower_bound(marks, host_ns, {}, &DeviceMark::host_ns);
  return mark == marks.end() ? host_ns : mark->device_ns;
}

std::int64_t DeviceClock::start() {
  recorded_.clear();
  if (device_.is_cpu()) return steady_ns();
  const c10::impl::VirtualGuardImpl guard(device_.type());
  guard.synchronizeDevice(device_.index());
  const std::int64_t now = steady_ns();  // the device is idle: it reaches the mark at once
  mark(now);
  return now;
}

void DeviceClock::mark(std::int64_t host_ns) {
  if (device_.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device_.type());
  // The default of libtorch has no times.
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(guard.getStream(device_));
  recorded_.push_back({host_ns, std::move(event)});
}

std::vector<DeviceMark> DeviceClock::take() {
  std::vector<DeviceMark> marks;
  if (recorded_.empty()) return marks;
  recorded_.back().event.synchronize();
  for (const Recorded& each : recorded_) {
    const double ms = recorded_.front().event.elapsedTime(each.event);
    marks.push_back({each.host_ns, recorded_.front().host_ns + std::llround(ms * 1e6)});
  }
  recorded_.clear();
  return marks;
}

}  // namespace trireme
