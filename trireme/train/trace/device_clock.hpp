#pragma once
// When a GPU reached what the host had enqueued: the host runs ahead, so its own times say little about layers.
#include <cstdint>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>

namespace trireme {

/// A place in the stream of a device: when the host enqueued it, and when the device reached it. Both as steady_ns().
struct DeviceMark {
  std::int64_t host_ns = 0, device_ns = 0;
};

/// When the device had done all that the host enqueued until `host_ns`: at the first mark from then on. `marks` are in
/// order; `host_ns` itself if there is no such mark.
std::int64_t device_time(const std::vector<DeviceMark>& marks, std::int64_t host_ns);

/// Does nothing on a CPU, which computes while the host waits for it.
class DeviceClock {
 public:
  explicit DeviceClock(at::Device device) : device_(device) {}

  /// Waits for the device, and forgets earlier marks. Returns steady_ns().
  std::int64_t start();
  /// Marks the current stream of this thread.
  void mark(std::int64_t host_ns);
  /// Waits for the last mark, and returns all since start().
  std::vector<DeviceMark> take();

 private:
  struct Recorded {
    std::int64_t host_ns;
    c10::Event event;
  };
  const at::Device device_;
  std::vector<Recorded> recorded_;  // [0]: start()
};

}  // namespace trireme
