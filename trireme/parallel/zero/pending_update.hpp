#pragma once
// An update that was launched, and that is a no-op if the gradients are not finite, or their norm is too large.
#include <exception>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme {

class ShardedOptimizer;

/// The update is enqueued on the device before the host knows whether the gradients are finite. settle() must be
/// called, so that a skipped update does not count as a step: destroying an unsettled one terminates the program,
/// except during stack unwinding.
class [[nodiscard]] PendingUpdate {
 public:
  PendingUpdate(at::Tensor norm, double skip_above, std::vector<ShardedOptimizer*> optimizers);
  PendingUpdate(PendingUpdate&& other) noexcept;
  PendingUpdate& operator=(PendingUpdate&&) = delete;
  ~PendingUpdate();

  /// The gradient norm before clipping, with the loss scale divided out: 0-dim, f64, on the device.
  const at::Tensor& norm() const { return norm_; }
  /// Reads the norm. If it is not finite or above the limit, the update changed nothing and is not counted as a step.
  double settle() &&;
  /// The same, if the caller has read the norm.
  void settle(double norm) &&;

 private:
  at::Tensor norm_;
  double skip_above_;
  std::vector<ShardedOptimizer*> optimizers_;  // empty: settled, or moved from
  int unwinding_ = std::uncaught_exceptions();
};

}  // namespace trireme
