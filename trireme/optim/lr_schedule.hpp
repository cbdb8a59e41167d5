#pragma once
// The learning rate as a function of the step, and of nothing else: resuming needs no state.
#include <cstdint>
#include <string_view>

namespace trireme {

enum class LrDecay { constant, linear, cosine, one_minus_sqrt };
/// "constant", "linear", "cosine", "1-sqrt"; ConfigError for others.
LrDecay parse_lr_decay(std::string_view name);

/// Warm-up from 0, then the full rate, then a decay whose last step has min_lr: with a short decay that is WSD
/// (warm-up, stable, decay); with decay_steps = 0 the decay begins behind the warm-up.
class LrSchedule {
 public:
  struct Options {
    double lr = 3e-4, min_lr = 0;
    std::int64_t steps = 1;  // of the run
    std::int64_t warmup_steps = 0;
    std::int64_t decay_steps = 0;
    LrDecay decay = LrDecay::cosine;
  };
  /// Where the parts do not fit into the run (a short trial of a long run's config), it ends before they do.
  explicit LrSchedule(Options options);

  /// Of the update that ends step `step`, from 1. Behind the last step it stays as it was there.
  ///   warm-up    lr step / warmup_steps
  ///   decay      min_lr + (lr - min_lr) f(t) with t in (0, 1]; f(t): linear 1 - t, cosine (1 + cos(pi t)) / 2, 1-sqrt
  ///     1 - sqrt(t)
  double operator()(std::int64_t step) const;

 private:
  Options options_;
  std::int64_t decay_begin_ = 0;  // the last step before it
  std::int64_t decay_length_ = 1;
};

}  // namespace trireme
