#include "trireme/planner/goodput.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::planner {

Goodput goodput_of(const FailureFacts& facts) {
  Goodput out;
  out.failure_every_s = facts.hours_between_failures * 3600 / facts.gpus;
  out.interval_s = std::min(facts.longest_interval_s, std::sqrt(2 * facts.blocked_s * out.failure_every_s));
  // A failure loses half an interval on average, and the restart.
  const double saving = facts.blocked_s / out.interval_s,
               failing = (out.interval_s / 2 + facts.restart_s) / out.failure_every_s;
  out.part = 1 / ((1 + saving) * (1 + failing));
  return out;
}

}  // namespace trireme::planner
