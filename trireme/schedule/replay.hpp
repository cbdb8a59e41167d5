#pragma once
// Runs a schedule against its data dependencies, without ranks, without a model: is it right, and what does it cost?
#include <vector>

#include "trireme/schedule/schedule.hpp"

namespace trireme::schedule {

/// Times of one microbatch on one stage, that is on all chunks of a rank together, and of one transfer between ranks.
struct ActionCosts {
  double F = 1;
  double I = 1;
  double W = 1;
  double transfer = 0;
};

struct Interval {
  double start;
  double end;
};

struct RankReplay {
  std::vector<Interval> steps;  // when each step of the program runs
  double busy = 0;
  /// Idle time between the rank's first step and its last.
  double idle = 0;
  /// Most chunk activations held at once, each from its F to its I or B: what backward still has to go through.
  int peak_live = 0;
  /// The same until W or B: with a backward cut in two, the inputs that the weight gradients still need.
  int peak_held = 0;
};

struct Replay {
  std::vector<RankReplay> ranks;
  int chunks_per_rank = 1;
  double makespan = 0;
  /// The largest idle time of a rank, each in its own window.
  double bubble = 0;
  /// The bubble as a part of the busy time of a rank: (p - 1) / m for 1F1B.
  double bubble_fraction = 0;

  /// Live activations of a rank in units of a whole stage.
  double peak_live_stages(int rank) const {
    return static_cast<double>(ranks[static_cast<std::size_t>(rank)].peak_live) / chunks_per_rank;
  }
};

/// Throws InternalError when the schedule is wrong, naming rank and step: a step on a rank that does not hold its
/// chunk, a step twice or never, B beside I or W, or a deadlock (the first rank that never gets on, its step, what it
/// waits for).
Replay replay(const Schedule& schedule, const ActionCosts& costs = {});

}  // namespace trireme::schedule
