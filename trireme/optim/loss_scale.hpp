#pragma once
// The loss of f16 training is multiplied by a scale, so that small gradients are not rounded to zero; the scale finds
// itself. bf16 and f32 need none.
#include <cstdint>

namespace trireme {

class LossScale {
 public:
  struct Options {
    double initial = 65536;
    double growth = 2, backoff = 0.5;
    std::int64_t growth_interval = 1000;  // good steps in a row before it grows
    std::int64_t hysteresis = 2;          // bad steps before it shrinks
    double least = 1, most = 0x1p40;
  };
  /// All there is to resume from.
  struct State {
    double scale = 0;
    std::int64_t good_steps = 0, patience = 0;
    bool operator==(const State&) const = default;
  };

  explicit LossScale(Options options);
  double scale() const { return state_.scale; }
  /// After every step, with the answer that all ranks agreed on. A step with infinite gradients is skipped; the
  /// patience for such steps comes back when the scale grows, not with the next good step.
  void update(bool found_infinity);

  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  Options options_;
  State state_;
};

}  // namespace trireme
