#pragma once
// Group over c10d's Gloo: processes on hosts connected by TCP. Host tensors, and CUDA tensors staged through the host.
#include <memory>
#include <string>

#include "trireme/comm/backends/c10d_group.hpp"

namespace gloo::transport {
class Device;
}

namespace trireme {

class GlooGroup final : public C10dGroup {
 public:
  using C10dGroup::C10dGroup;
  std::string transport() const override { return "gloo"; }

  /// From now on sums of a few integers take 2 + log2(ranks) rounds of messages, in wait(), instead of the 2 (ranks -
  /// 1) of Gloo's ring. For groups whose calls all ranks wait for in one order.
  void sum_counters_in_rounds() { counters_in_rounds_ = true; }

 protected:
  std::unique_ptr<CommWork> start(const Call& call, std::span<const CallRecord> records) override;
  std::unique_ptr<CommWork> start_messages(const std::vector<Message>& messages) override;
  void set_time_limit(double seconds) override;

 private:
  std::unique_ptr<CommWork> start_gather(const Call& call);
  std::unique_ptr<CommWork> start_counter_sum(const Call& call, const CallRecord& record);

  bool counters_in_rounds_ = false;
};

/// Where this process can be reached: an address or host name, or a network interface (as in GLOO_SOCKET_IFNAME).
/// From then on the process ignores SIGPIPE, unless it has a handler of its own: see ignore_broken_pipes().
/// `lazy`: for one group only, whose ranks connect when they first talk: Note [Connections].
std::shared_ptr<gloo::transport::Device> gloo_device(const std::string& address, const std::string& interface = "",
                                                     bool lazy = false);

/// Connects to all other ranks of the group within init_timeout_s, unless the device is lazy.
c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               const std::shared_ptr<gloo::transport::Device>& device,
                                               const CommOptions& options);

}  // namespace trireme
