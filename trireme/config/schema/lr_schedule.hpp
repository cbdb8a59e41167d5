#pragma once
// The learning rate as a pure function of the step: resuming needs no state.
#include <cstdint>

#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/config.hpp"

namespace trireme {

/// Warm-up, constant rate, decay: a short decay gives WSD (warm-up, stable, decay). The one convention: the decay is a
/// function of the steps that are done, so its first step has the full rate, and the last step of a run still trains
/// (min_lr would be the rate of the step after it).
class LrSchedule {
 public:
  struct Options {
    double lr = 3e-4, start_lr = 0, min_lr = 0;
    config::LrWarmup warmup = config::LrWarmup::linear;
    double warmup_steps = 0;
    std::int64_t start_delay = 0;
    config::LrDecay decay = config::LrDecay::cosine;
    double decay_start = 0, decay_end = 1;  // steps that are done
    double time_scale = 1;                  // of inverse_sqrt
  };
  explicit LrSchedule(const Options& options);

  /// For the update of step `step`, from 1; done = step - 1, w = max(0, step - start_delay).
  ///   step <= start_delay  start_lr
  ///   w < warmup_steps     start_lr + (lr - start_lr) g; linear: g = w / warmup_steps;
  ///                        log: g = log(w + 1) / log(warmup_steps), at most 1
  ///   done <= decay_start  lr
  ///   done < decay_end     min_lr + (lr - min_lr) f(t), t = (done - decay_start) / (decay_end - decay_start)
  ///                        f(t): linear 1 - t; cosine (1 + cos(pi t)) / 2; 1-sqrt 1 - sqrt(t);
  ///                        exponential 2 / 2^t - 1
  ///   later                min_lr
  /// inverse-sqrt: lr sqrt(time_scale / (done - decay_start + time_scale)), at least min_lr; min_lr after decay_end.
  double operator()(std::int64_t step) const;

 private:
  double warmed_up(double w) const;
  double decayed(double done) const;

  Options options_;
};

/// The schedule of a config, with the values that were not given filled in:
///   start   decay_end_step - decay_steps, else the end of the warm-up, which a start_delay above 1 shifts
///   end     decay_start_step + decay_steps, else training.steps
/// If decay_steps alone is given, the decay is at the end of the run, and never begins before the end of the warm-up:
/// a short trial of a long run's config cuts the schedule off.
LrSchedule::Options lr_options(const Config& config);

}  // namespace trireme
