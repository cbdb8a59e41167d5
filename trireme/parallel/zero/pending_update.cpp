#include "trireme/parallel/zero/pending_update.hpp"

#include <cmath>
#include <iostream>
#include <utility>

#include "trireme/parallel/zero/sharded_optimizer.hpp"

namespace trireme {

PendingUpdate::PendingUpdate(at::Tensor norm, double skip_above, std::vector<ShardedOptimizer*> optimizers)
    : norm_(std::move(norm)), skip_above_(skip_above), optimizers_(std::move(optimizers)) {}

PendingUpdate::PendingUpdate(PendingUpdate&& other) noexcept
    : norm_(std::move(other.norm_)),
      skip_above_(other.skip_above_),
      optimizers_(std::exchange(other.optimizers_, {})),
      unwinding_(other.unwinding_) {}

PendingUpdate::~PendingUpdate() {
  if (optimizers_.empty() || std::uncaught_exceptions() > unwinding_) return;
  std::cerr << "error: an update was started but never settled\n"
            << "  fix: call settle() on the PendingUpdate that Zero::update returned\n";
  std::terminate();
}

double PendingUpdate::settle() && {
  const double norm = norm_.item<double>();
  std::move(*this).settle(norm);
  return norm;
}

void PendingUpdate::settle(double norm) && {
  for (ShardedOptimizer* optimizer : std::exchange(optimizers_, {}))
    if (!(std::isfinite(norm) && norm <= skip_above_)) optimizer->forget_step();
}

}  // namespace trireme
