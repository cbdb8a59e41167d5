#pragma once
// Notices work that makes no progress: storage that does not answer.
#include <chrono>
#include <cstdint>
#include <future>
#include <iostream>
#include <string>

#include <ATen/ops/zeros.h>

#include "trireme/base/stopwatch.hpp"
#include "trireme/comm/group_text.hpp"

namespace trireme {

struct StallLimits {
  double warning_s = 60, timeout_s = 900;
};

class StallWatch {
 public:
  explicit StallWatch(const StallLimits& limits) : limits_(limits) {}

  enum class State { fine, warn, stalled };
  /// `progress`: any number that changes when something is done. `warn` is returned once per stall.
  State look(std::uint64_t progress) {
    if (progress != progress_) {
      progress_ = progress;
      since_ = Stopwatch();
      warned_ = false;
    }
    const double seconds = since_.seconds();
    if (seconds >= limits_.timeout_s) return State::stalled;
    if (seconds < limits_.warning_s || warned_) return State::fine;
    warned_ = true;
    return State::warn;
  }
  /// Since the last progress.
  double seconds() const { return since_.seconds(); }

 private:
  StallLimits limits_;
  std::uint64_t progress_ = 0;
  Stopwatch since_;
  bool warned_ = false;
};

/// Collective: until the work of all ranks is over, however long it takes, in short turns: a rank whose disk takes
/// minutes must not look like one that hangs. `look`: what to warn of, or ""; called in each turn of a rank whose work
/// goes on.
template <class Future, class Look>
void wait_for_all_ranks(Group& control, const Future& work, const Look& look) {
  constexpr std::chrono::milliseconds kTurn(200);
  for (std::int64_t waiting = 1; waiting > 0;) {
    const bool over = work.wait_for(kTurn) == std::future_status::ready;
    const std::string warning = over ? "" : look();
    at::Tensor sums = at::zeros({2}, at::kLong);
    sums[0] = over ? 0 : 1;
    sums[1] = warning.empty() ? 0 : 1;
    sums = control.all_reduce_(sums).wait();
    waiting = sums[0].template item<std::int64_t>();
    if (sums[1].template item<std::int64_t>() == 0) continue;
    const std::string first = first_failure(control, warning);
    if (control.rank() == 0) std::cerr << "warning: " << first << std::endl;
  }
}

}  // namespace trireme
