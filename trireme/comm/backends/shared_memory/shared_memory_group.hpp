#pragma once
// Group of ranks on one host, as processes or threads, that move host tensors through memory which they share.
#include <deque>
#include <memory>
#include <vector>

#include "trireme/base/owned_fd.hpp"
#include "trireme/comm/backends/shared_memory/exchange.hpp"
#include "trireme/comm/backends/shared_memory/message_transfer.hpp"
#include "trireme/comm/backends/shared_memory/progress.hpp"
#include "trireme/comm/group.hpp"
#include "trireme/comm/watch/watchdog.hpp"

namespace trireme {

/// What a rank shows to all others of its host.
struct BellPage {
  Doorbell bell;
  std::uint64_t mark[2];  // random, also in the store: the process is the one that is meant
};

/// Another rank of this host.
struct SharedMemoryPeer {
  int pid = 0;
  SharedMemory memory{};  // of its BellPage
  OwnedFd process{};      // a pidfd, readable once it has ended

  BellPage& page() const { return *reinterpret_cast<BellPage*>(memory.data()); }
  Doorbell& bell() const { return page().bell; }
  bool has_ended() const;
};

/// Sums are in rank order whatever the options, and calls are compared before their data is used in every check mode.
class SharedMemoryGroup final : public Group, private Movable {
 public:
  /// `peers` by rank of the group; that of this rank is not used.
  SharedMemoryGroup(Membership members, std::shared_ptr<FlightRecorder> recorder, CommOptions options,
                    GroupMemory memory, std::vector<std::shared_ptr<SharedMemoryPeer>> peers,
                    std::shared_ptr<Progress> progress, std::shared_ptr<Watchdog> watchdog);
  ~SharedMemoryGroup() override;
  std::string transport() const override { return "shared memory"; }

 protected:
  std::unique_ptr<CommWork> start(const Call& call, std::span<const CallRecord> records) override;
  std::unique_ptr<CommWork> compare(std::span<const CallRecord> records) override;
  void set_time_limit(double seconds) override { limit_s_ = seconds; }
  [[noreturn]] void fail(const CallRecord& record, const std::exception& cause) override;

 private:
  class Work;
  /// Messages of one pair in one direction.
  using Queue = std::deque<std::shared_ptr<MessageTransfer>>;

  bool advance() override;
  bool has_calls() const override;
  void look_at_peers() override;
  std::exception_ptr error() const override { return error_; }
  void advance_calls(bool& moved);
  bool needs(int rank) const;
  bool advance(Queue& queue);
  std::shared_ptr<Exchange> exchange(const Call& call, const CallRecord& record);
  std::shared_ptr<MessageTransfer> transfer(const Message& message, const CallRecord& record);
  void compare_calls(int rank, const CallRecord& theirs, const CallRecord& mine) const;
  int world_rank(int rank) const { return world_ranks()[static_cast<std::size_t>(rank)]; }

  const std::shared_ptr<const Membership> membership_;
  GroupMemory memory_;
  const std::vector<std::shared_ptr<SharedMemoryPeer>> peers_;
  const std::shared_ptr<Progress> progress_;
  const std::shared_ptr<Watchdog> watchdog_;
  double limit_s_;
  std::deque<std::shared_ptr<Exchange>> exchanges_;
  std::vector<Queue> sends_, receives_;  // by peer
  std::chrono::steady_clock::time_point looked_at_peers_ = std::chrono::steady_clock::now();
  std::exception_ptr error_{};  // of the first call that failed: the streams cannot go on behind it
};

}  // namespace trireme
