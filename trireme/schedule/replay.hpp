#pragma once
// Simulates a schedule against its data dependencies, without ranks or a model: validates it and computes its cost.
#include <vector>

#include "trireme/schedule/schedule.hpp"

namespace trireme::schedule {

/// Times of one microbatch on one stage (all chunks of a rank together), and of one transfer between ranks.
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
  std::vector<Interval> steps;  // when each action of the program runs
  double busy = 0;
  /// Idle time between the rank's first and last action.
  double idle = 0;
  /// Peak number of live chunk activations, each from its F to its I or B: those that backward still needs.
  int peak_live = 0;
  /// The same until W or B: with a split backward, includes the inputs that the weight gradients still need.
  int peak_held = 0;
};

struct Replay {
  std::vector<RankReplay> ranks;
  int chunks_per_rank = 1;
  double makespan = 0;
  /// The largest idle time of any rank, each between its own first and last action.
  double bubble = 0;
  /// The bubble as a fraction of a rank's busy time: (p - 1) / m for 1F1B.
  double bubble_fraction = 0;

  /// The bubble as a share of the time from that rank's first to its last action: what users are told.
  double bubble_share() const { return bubble_fraction / (1 + bubble_fraction); }

  /// Peak live activations of a rank in units of a whole stage.
  double peak_live_stages(int rank) const {
    return static_cast<double>(ranks[static_cast<std::size_t>(rank)].peak_live) / chunks_per_rank;
  }
};

/// Throws InternalError if the schedule is invalid, naming rank and action: an action on a rank without its chunk, a
/// duplicate or missing action, B together with I or W, or a deadlock (the first rank that is stuck, its action, what
/// it waits for).
Replay replay(const Schedule& schedule, const ActionCosts& costs = {});

}  // namespace trireme::schedule
