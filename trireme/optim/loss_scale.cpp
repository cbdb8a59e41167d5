#include "trireme/optim/loss_scale.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {

LossScale::LossScale(Options options)
    : options_(options), state_{.scale = options.initial, .good_steps = 0, .patience = options.hysteresis} {
  require<ConfigError>(options.initial >= options.least && options.growth > 1 && options.backoff > 0 &&
                           options.backoff < 1 && options.growth_interval >= 1 && options.hysteresis >= 1,
                       "loss_scale: initial = ", options.initial, ", growth_interval = ", options.growth_interval,
                       ", hysteresis = ", options.hysteresis, ": each must be at least 1");
}

void LossScale::update(bool found_infinity) {
  if (found_infinity) {
    state_.good_steps = 0;
    state_.patience = std::max<std::int64_t>(0, state_.patience - 1);
    if (state_.patience == 0) state_.scale = std::max(options_.least, state_.scale * options_.backoff);
  } else if (++state_.good_steps == options_.growth_interval) {
    state_ = {.scale = std::min(options_.most, state_.scale * options_.growth),
              .good_steps = 0,
              .patience = options_.hysteresis};
  }
}

}  // namespace trireme
