#pragma once
// A communication in flight.
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/call.hpp"

namespace trireme {

class Group;

/// What a backend has under way for one call.
class CommWork {
 public:
  virtual ~CommWork() = default;
  virtual bool done() = 0;
  /// Returns when the result may be used (on CUDA: by what is put on the current stream from now on), or throws.
  virtual void wait() = 0;
};

/// Owns its tensors until it is waited for, so nothing is freed under the wire. Dropping one unwaited is a mistake that
/// stops the program with its name; while an exception unwinds it is let go quietly, because waiting there for a peer
/// that died would hang.
class [[nodiscard]] Pending {
 public:
  Pending(Pending&& other) noexcept;
  Pending& operator=(Pending&&) = delete;
  ~Pending();

  /// The result. Throws CommError, which names who is missing, when it does not come in time.
  at::Tensor wait() &&;
  bool done() const;

 private:
  friend class Group;
  Pending(Group& group, Call call, std::vector<CallRecord> records, at::Tensor result,
          std::unique_ptr<CommWork> flight);

  Group* group_;  // nullptr: waited for, or moved from
  Call call_;
  std::vector<CallRecord> records_;  // one; of a batch as many as messages
  at::Tensor result_;
  std::unique_ptr<CommWork> flight_;  // nullptr: nothing left to wait for
  int unwinding_;
};

}  // namespace trireme
