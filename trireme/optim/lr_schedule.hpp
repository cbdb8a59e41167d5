#pragma once
// The learning rate as a pure function of the step: resuming needs no state.
#include <cstdint>
#include <string_view>

namespace trireme {

enum class LrDecay { constant, linear, cosine, one_minus_sqrt };
/// "constant", "linear", "cosine", "1-sqrt"; ConfigError for others.
LrDecay parse_lr_decay(std::string_view name);

/// Linear warm-up from 0, then constant, then a decay that reaches min_lr in its last step: a short decay gives WSD
/// (warm-up, stable, decay); with decay_steps = 0 the decay starts right after the warm-up.
class LrSchedule {
 public:
  struct Options {
    double lr = 3e-4, min_lr = 0;
    std::int64_t steps = 1;  // of the run
    std::int64_t warmup_steps = 0;
    std::int64_t decay_steps = 0;
    LrDecay decay = LrDecay::cosine;
  };
  /// If the phases are longer than the run (a short trial of a long run's config), the schedule is cut off.
  explicit LrSchedule(Options options);

  /// For the update of step `step`, from 1. After the last step it stays constant.
  ///   warm-up    lr step / warmup_steps
  ///   decay      min_lr + (lr - min_lr) f(t) with t in (0, 1]
  ///              f(t): linear 1 - t; cosine (1 + cos(pi t)) / 2; 1-sqrt 1 - sqrt(t)
  double operator()(std::int64_t step) const;

 private:
  Options options_;
  std::int64_t decay_begin_ = 0;  // the last step before it
  std::int64_t decay_length_ = 1;
};

}  // namespace trireme
