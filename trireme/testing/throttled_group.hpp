#pragma once
// A group with a simulated slow link, to test overlap of computation and communication on one machine.
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "trireme/comm/group.hpp"

namespace trireme {

struct Link {
  double bytes_per_s = 1e9;
  double latency_s = 0;
};

/// Passes each call to `inner` at once, so the data moves at full speed; but the call completes, and wait() returns,
/// only when the link would have carried it. The link of a rank is full-duplex and carries one call at a time: a call
/// occupies it for max(bytes sent, bytes received) / bytes_per_s, and completes latency_s later. Bytes sent are those
/// of Traffic. Times are host times: on CUDA, wait() blocks the host.
///
/// Calls are checked, recorded and counted here and not in `inner`, whose sequence numbers are continued: do not use
/// `inner` directly while it is wrapped, and keep it alive.
class ThrottledGroup final : public Group {
 public:
  ThrottledGroup(Group& inner, Link link);
  ~ThrottledGroup() override;
  std::optional<at::Device> only_device() const override { return inner_.only_device(); }
  std::string transport() const override { return inner_.transport(); }

 protected:
  std::unique_ptr<CommWork> start(const Call& call, std::span<const CallRecord> records) override;
  std::unique_ptr<CommWork> compare(std::span<const CallRecord> records) override;
  [[noreturn]] void fail(const CallRecord& record, const std::exception& cause) override;

 private:
  using Clock = std::chrono::steady_clock;

  Group& inner_;
  const Link link_;
  std::int64_t carried_bytes_ = 0;    // of all calls so far
  Clock::time_point link_free_ = {};  // when the link has carried them
};

}  // namespace trireme
