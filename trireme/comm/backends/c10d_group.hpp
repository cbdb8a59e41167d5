#pragma once
// Group over a c10d backend: the common part of Gloo and NCCL.
#include <chrono>
#include <memory>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "trireme/comm/group.hpp"
#include "trireme/comm/watch/watchdog.hpp"

namespace trireme {

class C10dGroup : public Group {
 public:
  /// `checks`: a Gloo backend of the same ranks for strict mode, otherwise null.
  C10dGroup(Membership members, std::shared_ptr<FlightRecorder> recorder, CommOptions options,
            c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Backend> checks,
            std::shared_ptr<Watchdog> watchdog);
  ~C10dGroup() override;

 protected:
  std::unique_ptr<CommWork> start(const Call& call, std::span<const CallRecord> records) override;
  std::unique_ptr<CommWork> compare(std::span<const CallRecord> records) override;
  void set_time_limit(double seconds) override;
  [[noreturn]] void fail(const CallRecord& record, const std::exception& cause) override;

  /// Starts one or several point-to-point messages; backends differ in how they do this.
  virtual std::unique_ptr<CommWork> start_messages(const std::vector<Message>& messages) = 0;
  /// A CUDA graph with calls of this group has been enqueued.
  virtual std::unique_ptr<CommWork> start_replay(const CallRecord& /*record*/) { return nullptr; }
  /// Wraps c10d work in the handle that start() returns.
  virtual std::unique_ptr<CommWork> flight_of(c10::intrusive_ptr<c10d::Work> work, const CallRecord& record);

  c10d::Backend& backend() { return *backend_; }
  /// Of the calls that start now.
  std::chrono::milliseconds time_limit() const { return time_limit_; }
  Watchdog& watchdog() { return *watchdog_; }
  const std::shared_ptr<const Membership>& membership() const { return membership_; }

 private:
  c10::intrusive_ptr<c10d::Work> start_work(const Call& call);
  void sum_in_rank_order(const Call& call, const CallRecord& record);

  const std::shared_ptr<const Membership> membership_;
  const c10::intrusive_ptr<c10d::Backend> backend_, checks_;
  const std::shared_ptr<Watchdog> watchdog_;
  std::chrono::milliseconds time_limit_;
};

std::chrono::milliseconds in_milliseconds(double seconds);

/// One or several c10d work handles. `limit`: for messages over Gloo, whose own timeout is that of the connection's
/// start; zero: the backend's.
class C10dWork : public CommWork {
 public:
  explicit C10dWork(std::vector<c10::intrusive_ptr<c10d::Work>> works, std::chrono::milliseconds limit = {})
      : works_(std::move(works)), limit_(limit) {}
  bool done() override;
  void wait() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
  std::chrono::milliseconds limit_;
};

}  // namespace trireme
