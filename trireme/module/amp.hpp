#pragma once
// Mixed precision for users' modules: autocast as a scope, and a gradient scaler that all ranks agree with.
#include <vector>

#include <ATen/autocast_mode.h>
#include <torch/optim/optimizer.h>

#include "trireme/comm/group.hpp"

namespace trireme {

/// While it exists, operations of this thread on devices of this type compute in `dtype` where that is safe, as
/// torch.autocast: matrix products and convolutions in it, reductions and losses in f32.
class [[nodiscard]] AutocastScope {
 public:
  AutocastScope(at::DeviceType device, at::ScalarType dtype);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const at::DeviceType device_;
  const bool enabled_before_;
  const at::ScalarType dtype_before_;
};

struct GradScalerOptions {
  double initial_scale = 65536;
  double growth_factor = 2, backoff_factor = 0.5;
  int growth_interval = 2000;  // steps without an overflow until the scale grows
};

/// Scales losses so that f16 gradients do not underflow, and skips updates whose gradients are not finite on any rank.
///
///   scaler.scale(loss).backward();
///   scaler.step(optimizer, group);     // unscales, steps if all is finite on all ranks, adapts the scale
class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {}) : options_(options), scale_(options.initial_scale) {}

  at::Tensor scale(const at::Tensor& loss) const { return loss * scale_; }
  /// False: skipped. Collective over the group, whose ranks may hold different parameters or shards.
  bool step(torch::optim::Optimizer& optimizer, Group& group);
  /// The same in two parts, with something in between, such as the clipping of gradients. After unscale() the gradients
  /// are those of the loss; it returns whether they are finite on all ranks.
  bool unscale(torch::optim::Optimizer& optimizer, Group& group) const;
  void update(bool finite);

  double scale_value() const { return scale_; }

  /// What a training that goes on needs.
  struct State {
    double scale = 1;
    int good_steps = 0;  // since the scale has changed
  };
  State state() const { return {scale_, good_steps_}; }
  void set_state(const State& state) {
    scale_ = state.scale;
    good_steps_ = state.good_steps;
  }

 private:
  const GradScalerOptions options_;
  double scale_;
  int good_steps_ = 0;
};

}  // namespace trireme
