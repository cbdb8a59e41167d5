#pragma once
// An update that may turn out to have changed nothing.
#include <exception>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme {

class ShardedOptimizer;

/// The device has been told to update; whether the gradients were finite is not known before the norm is read. It must
/// be settled, so that a skipped update does not count as a step: dropping one unsettled stops the program, except
/// while an exception unwinds.
class [[nodiscard]] PendingUpdate {
 public:
  PendingUpdate(at::Tensor norm, std::vector<ShardedOptimizer*> optimizers);
  PendingUpdate(PendingUpdate&& other) noexcept;
  PendingUpdate& operator=(PendingUpdate&&) = delete;
  ~PendingUpdate();

  /// The norm of the gradients before clipping, without the loss scale: 0-dim, f64, on the device.
  const at::Tensor& norm() const { return norm_; }
  /// Reads the norm. Where it is not finite, nothing was changed, and the update does not count.
  double settle() &&;

 private:
  at::Tensor norm_;
  std::vector<ShardedOptimizer*> optimizers_;  // empty: settled, or moved from
  int unwinding_ = std::uncaught_exceptions();
};

}  // namespace trireme
