#pragma once
// A group behind a slow link: overlap of computation and communication, tested on one machine.
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

/// Hands each call to `inner` at once, so the data moves as fast as it can; the call is done, and wait() returns, not
/// before the link would have carried it. The link of a rank carries one call after the other, both ways at once: a
/// call takes max(bytes sent, bytes received) / bytes_per_s of it, and comes latency_s later. Bytes sent are those of
/// Traffic. The time is that of the host: on CUDA, wait() blocks the host.
///
/// Calls are checked, recorded and counted here and not in `inner`, whose numbering this continues: do not use `inner`
/// directly while it is wrapped, and let it live longer.
class ThrottledGroup final : public Group {
 public:
  ThrottledGroup(Group& inner, Link link);
  ~ThrottledGroup() override;

 protected:
  std::unique_ptr<CommWork> start(const Call& call, std::span<const CallRecord> records) override;
  void compare(std::span<const CallRecord> records) override;
  [[noreturn]] void fail(const CallRecord& record, const std::exception& cause) override;

 private:
  using Clock = std::chrono::steady_clock;

  Group& inner_;
  const Link link_;
  std::int64_t carried_bytes_ = 0;    // of all calls so far
  Clock::time_point link_free_ = {};  // when the link has carried them
};

}  // namespace trireme
