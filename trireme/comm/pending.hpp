#pragma once
// Handle of an asynchronous communication.
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/calls/call.hpp"

namespace trireme {

class Group;

/// A backend's handle of one call in progress.
class CommWork {
 public:
  virtual ~CommWork() = default;
  virtual bool done() = 0;
  /// Returns when the result may be used (on CUDA: by work enqueued on the current stream from now on), or throws.
  virtual void wait() = 0;
};

/// Owns its tensors until wait(), so no buffer is freed during the transfer. Destroying one without wait() is a bug
/// that aborts the program with its name; during stack unwinding it is dropped silently, because waiting for a dead
/// peer would hang.
class [[nodiscard]] Pending {
 public:
  Pending(Pending&& other) noexcept;
  Pending& operator=(Pending&&) = delete;
  ~Pending();

  /// The result. Throws CommError that names the missing ranks after a timeout.
  at::Tensor wait() &&;
  bool done() const;

 private:
  friend class Group;
  Pending(Group& group, Call call, std::vector<CallRecord> records, at::Tensor result, std::unique_ptr<CommWork> work);

  Group* group_;  // nullptr: already waited for, or moved from
  Call call_;
  std::vector<CallRecord> records_;  // one; for a batch one per message
  at::Tensor result_;
  std::unique_ptr<CommWork> work_;  // nullptr: nothing left to wait for
  int unwinding_;
};

}  // namespace trireme
