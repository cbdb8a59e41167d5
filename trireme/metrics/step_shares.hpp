#pragma once
// Where the time of a step goes: what each rank did in it, and the shares of all ranks together.
#include <vector>

namespace trireme::metrics {

/// Seconds of one rank from the begin of a step to its end agreement; or of all ranks, summed. The parts are disjoint.
struct RankTime {
  double elapsed = 0;  // of all of it
  double data = 0;
  double forward = 0, backward = 0;  // without the waits inside
  double idle = 0;                   // pipelines: waited for its inputs, until the end of its last action
  double waited = 0;                 // for all other communication
  double update = 0;                 // after its last action: sums of gradients, clipping, optimizer; without waits

  RankTime& operator+=(const RankTime& other);
  /// In which it worked itself: what makes a rank slow. Steps of all ranks end together.
  double own_work() const { return elapsed - idle - waited; }
};

/// What rank 0 knows of a step when it is over.
struct StepTimes {
  double step = 0;                     // all of it
  double tail = 0;                     // of it, work after the end agreement: counts as the optimizer's
  RankTime ranks{};                    // summed over the ranks
  std::vector<double> last_actions{};  // by rank: end of its last forward or backward, from the begin of the step
  bool pipeline = false;               // whether waiting for a rank that still has actions counts as bubble
};

/// Fractions of the step, means over the ranks; they sum to 1.
struct StepShares {
  double forward = 0, backward = 0, communication = 0, bubble = 0, optimizer = 0, data = 0, other = 0;

  StepShares& operator+=(const StepShares& more);
  StepShares operator*(double factor) const;
  double sum() const { return forward + backward + communication + bubble + optimizer + data + other; }
};

/// A rank waits for what it has not: from its end agreement on for the others, which is communication, except that
/// while a pipeline rank still has actions to do, those that have none wait in the bubble.
StepShares shares_of(const StepTimes& times);

}  // namespace trireme::metrics
