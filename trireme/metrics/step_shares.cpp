#include "trireme/metrics/step_shares.hpp"

#include <algorithm>
#include <numeric>

namespace trireme::metrics {

RankTime& RankTime::operator+=(const RankTime& other) {
  elapsed += other.elapsed;
  data += other.data;
  forward += other.forward;
  backward += other.backward;
  idle += other.idle;
  waited += other.waited;
  update += other.update;
  return *this;
}

StepShares& StepShares::operator+=(const StepShares& more) {
  forward += more.forward;
  backward += more.backward;
  communication += more.communication;
  bubble += more.bubble;
  optimizer += more.optimizer;
  data += more.data;
  other += more.other;
  return *this;
}

StepShares StepShares::operator*(double factor) const {
  return {.forward = forward * factor,
          .backward = backward * factor,
          .communication = communication * factor,
          .bubble = bubble * factor,
          .optimizer = optimizer * factor,
          .data = data * factor,
          .other = other * factor};
}

StepShares shares_of(const StepTimes& t) {
  const auto ranks = static_cast<double>(std::max<std::size_t>(1, t.last_actions.size()));
  if (!(t.step > 0)) return {};
  const double elapsed = t.ranks.elapsed / ranks;
  // What a rank waited at the end of the step, in the agreement itself. Clocks of ranks begin a step a little apart.
  const double at_end = std::max(0.0, t.step - t.tail - elapsed);
  double bubble = t.ranks.idle / ranks, communication = t.ranks.waited / ranks + at_end;
  if (t.pipeline && !t.last_actions.empty()) {
    const double last = *std::ranges::max_element(t.last_actions),
                 mean = std::accumulate(t.last_actions.begin(), t.last_actions.end(), 0.0) / ranks;
    const double cool_down = std::min(last - mean, communication);
    bubble += cool_down;
    communication -= cool_down;
  }
  StepShares shares{.forward = t.ranks.forward / ranks,
                    .backward = t.ranks.backward / ranks,
                    .communication = communication,
                    .bubble = bubble,
                    .optimizer = t.ranks.update / ranks + t.tail,
                    .data = t.ranks.data / ranks};
  shares.other = std::max(0.0, t.step - shares.sum());
  return shares * (1 / shares.sum());
}

}  // namespace trireme::metrics
