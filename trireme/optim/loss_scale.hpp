#pragma once
// Dynamic loss scaling for f16 training, so that small gradients do not underflow. bf16 and f32 need none.
#include <cstdint>

namespace trireme {

class LossScale {
 public:
  struct Options {
    double initial = 65536;
    double growth = 2, backoff = 0.5;
    std::int64_t growth_interval = 1000;  // finite steps in a row before the scale grows
    std::int64_t hysteresis = 2;          // non-finite steps before the scale shrinks
    double least = 1, most = 0x1p40;
  };
  /// The complete state, for checkpoints.
  struct State {
    double scale = 0;
    std::int64_t good_steps = 0, patience = 0;
    bool operator==(const State&) const = default;
  };

  explicit LossScale(Options options);
  double scale() const { return state_.scale; }
  /// After every step, with the result that all ranks agreed on. A step with infinite gradients is skipped; the
  /// hysteresis is reset when the scale grows, not by the next finite step.
  void update(bool found_infinity);

  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  Options options_;
  State state_;
};

}  // namespace trireme
