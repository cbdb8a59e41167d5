#include "trireme/config/schema/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/error.hpp"

namespace trireme {

using config::LrDecay;
using config::LrWarmup;

LrSchedule::LrSchedule(const Options& options) : options_(options) {
  const Options& o = options_;
  require<ConfigError>(o.warmup_steps >= 0 && o.start_delay >= 0 && o.decay_start >= 0 && o.decay_end >= 0,
                       "lr_scheduler: a warm-up of ", o.warmup_steps, " steps after ", o.start_delay,
                       ", and a decay from ", o.decay_start, " to ", o.decay_end, ": none may be negative");
}

double LrSchedule::warmed_up(double w) const {
  const Options& o = options_;
  const double part = o.warmup == LrWarmup::linear
                          ? w / o.warmup_steps
                          : std::min(1.0, std::log(w + 1) / std::log(std::max(2.0, o.warmup_steps)));
  return o.start_lr + (o.lr - o.start_lr) * part;
}

double LrSchedule::decayed(double done) const {
  const Options& o = options_;
  const double since = done - o.decay_start;
  if (o.decay == LrDecay::inverse_sqrt) {
    if (done > o.decay_end) return o.min_lr;
    return since <= 0 ? o.lr : std::max(o.min_lr, o.lr * std::sqrt(o.time_scale / (since + o.time_scale)));
  }
  if (done >= o.decay_end) return o.min_lr;
  if (since <= 0) return o.lr;
  const double t = since / (o.decay_end - o.decay_start);
  const auto between = [&](double left) { return o.min_lr + (o.lr - o.min_lr) * left; };
  switch (o.decay) {
    case LrDecay::linear: return between(1 - t);
    case LrDecay::cosine: return between((1 + std::cos(std::numbers::pi * t)) / 2);
    case LrDecay::one_minus_sqrt: return between(1 - std::sqrt(t));
    case LrDecay::exponential: return between(2 * std::pow(0.5, t) - 1);
    case LrDecay::constant:
    case LrDecay::inverse_sqrt: break;
  }
  throw InternalError("a decay that is none");
}

double LrSchedule::operator()(std::int64_t step) const {
  const Options& o = options_;
  require(step >= 1, "the learning rate of step ", step, ": steps count from 1");
  const auto w = static_cast<double>(std::max<std::int64_t>(0, step - o.start_delay));
  if (step <= o.start_delay) return o.start_lr;  // also without a warm-up
  if (w < o.warmup_steps) return warmed_up(w);
  return o.decay == LrDecay::constant ? o.lr : decayed(static_cast<double>(step - 1));
}

namespace {

/// The end and the length of a decay may be fractions whose difference is meant to be whole. Its rounding error would
/// be 1e8 times larger in the square root of a decay that begins there.
double whole_if_near(double steps) {
  const double whole = std::round(steps);
  return std::abs(steps - whole) <= 1e-9 ? whole : steps;
}

}  // namespace

LrSchedule::Options lr_options(const Config& config) {
  const LrSchedulerConfig& s = config.lr_scheduler;
  LrSchedule::Options o{.lr = config.optimizer.lr,
                        .start_lr = s.start_lr,
                        .min_lr = s.min_lr,
                        .warmup = config::parse_lr_warmup(s.warmup_shape),
                        .warmup_steps = s.warmup_steps,
                        .start_delay = s.start_delay,
                        .decay = config::parse_lr_decay(s.decay)};
  // Where the decay begins by itself: step warmup_steps + start_delay is the first one with the full rate, or the one
  // after the delay.
  const std::int64_t shift = s.warmup_steps > 0 ? std::max<std::int64_t>(0, s.start_delay - 1) : s.start_delay;
  const double warmup = s.warmup_steps + static_cast<double>(shift);
  const double length = s.decay_steps, start = s.decay_start_step, end = s.decay_end_step;
  const auto steps = static_cast<double>(config.training.steps);
  const bool has_length = length > 0 && o.decay != LrDecay::inverse_sqrt, has_end = end > 0;
  const double at_the_end = has_end ? std::max(0.0, whole_if_near(end - length)) : std::max(warmup, steps - length);
  o.decay_start = start >= 0 ? start : has_length ? at_the_end : warmup;
  o.decay_end = has_end ? end : has_length ? o.decay_start + length : steps;
  o.time_scale = length > 0 ? length : o.decay_start > 0 ? o.decay_start : 1;
  return o;
}

}  // namespace trireme
