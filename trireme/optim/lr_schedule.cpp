#include "trireme/optim/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/error.hpp"

namespace trireme {

namespace {

double decayed(LrDecay decay, double t) {
  switch (decay) {
    case LrDecay::constant: return 1;
    case LrDecay::linear: return 1 - t;
    case LrDecay::cosine: return (1 + std::cos(std::numbers::pi * t)) / 2;
    case LrDecay::one_minus_sqrt: return 1 - std::sqrt(t);
  }
  throw InternalError("a decay that is none");
}

}  // namespace

LrDecay parse_lr_decay(std::string_view name) {
  if (name == "constant") return LrDecay::constant;
  if (name == "linear") return LrDecay::linear;
  if (name == "cosine") return LrDecay::cosine;
  require<ConfigError>(name == "1-sqrt", "lr_scheduler.decay = \"", name, "\": constant, linear, cosine or 1-sqrt");
  return LrDecay::one_minus_sqrt;
}

LrSchedule::LrSchedule(Options options) : options_(options) {
  const Options& o = options_;
  require<ConfigError>(o.steps >= 1 && o.warmup_steps >= 0 && o.decay_steps >= 0, "a run of ", o.steps, " steps, ",
                       o.warmup_steps, " of warm-up and ", o.decay_steps, " of decay: none may be negative");
  decay_begin_ = o.decay_steps > 0 ? std::max(o.warmup_steps, o.steps - o.decay_steps) : o.warmup_steps;
  decay_length_ = o.decay_steps > 0 ? o.decay_steps : std::max<std::int64_t>(1, o.steps - o.warmup_steps);
}

double LrSchedule::operator()(std::int64_t step) const {
  const Options& o = options_;
  require(step >= 1, "the learning rate of step ", step, ": steps count from 1");
  if (step <= o.warmup_steps) return o.lr * static_cast<double>(step) / static_cast<double>(o.warmup_steps);
  if (o.decay == LrDecay::constant || step <= decay_begin_) return o.lr;
  const double t =
      std::min(1.0, static_cast<double>(std::min(step, o.steps) - decay_begin_) / static_cast<double>(decay_length_));
  const double left = decayed(o.decay, t);
  return o.min_lr + (o.lr - o.min_lr) * left;
}

}  // namespace trireme
