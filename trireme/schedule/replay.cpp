#include "trireme/schedule/replay.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::schedule {
namespace {

constexpr double kNotYet = -1;
constexpr int kNobody = -1;

/// What other actions wait for. B produces both the input and the weight gradient.
enum Result { kOutput, kInputGrad, kWeightGrad, kNumResults };

class Player {
 public:
  Player(const Schedule& schedule, const ActionCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        before_(size(schedule.chunks())),
        after_(size(schedule.chunks())),
        done_at_(size(schedule.chunks()) * size(schedule.microbatches) * kNumResults, kNotYet),
        first_waiter_(done_at_.size(), kNobody),
        next_waiter_(size(schedule.ranks()), kNobody),
        next_step_(size(schedule.ranks()), 0) {
    result_.ranks.resize(size(schedule.ranks()));
    result_.chunks_per_rank = std::max(1, schedule.chunks_per_rank());
    for (const Edge& edge : schedule.edges) {
      require(is_chunk(edge.from) && is_chunk(edge.to), "schedule ", schedule.name, ": the edge ", edge.from, " -> ",
              edge.to, " names a chunk that is not there (", schedule.chunks(), " chunks)");
      before_[size(edge.to)].push_back(edge.from);
      after_[size(edge.from)].push_back(edge.to);
    }
    for (const int rank : schedule.rank_of_chunk)
      require(rank >= 0 && rank < schedule.ranks(), "schedule ", schedule.name, ": a chunk is on pp rank ", rank,
              ", but there are ", schedule.ranks());
  }

  Replay run() {
    for (int r = 0; r < schedule_.ranks(); ++r) runnable_.push_back(r);
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      advance(rank);
    }
    check_finished();
    check_complete();
    summarise();
    return std::move(result_);
  }

 private:
  static std::size_t size(int n) { return static_cast<std::size_t>(n); }
  bool is_chunk(int chunk) const { return chunk >= 0 && chunk < schedule_.chunks(); }
  int rank_of(int chunk) const { return schedule_.rank_of_chunk[size(chunk)]; }
  std::size_t slot(Result result, int chunk, int microbatch) const {
    return (size(chunk) * size(schedule_.microbatches) + size(microbatch)) * kNumResults + result;
  }

  /// Runs the rank until it has finished or must wait.
  void advance(int rank) {
    const Program& program = schedule_.programs[size(rank)];
    for (std::size_t& next = next_step_[size(rank)]; next < program.size(); ++next) {
      const Action& step = program[next];
      check(rank, next, step);
      double start = result_.ranks[size(rank)].steps.empty() ? 0 : result_.ranks[size(rank)].steps.back().end;
      if (!ready(rank, step, start)) return;
      finish(rank, step, start);
    }
  }

  /// Moves `start` to the arrival of the last input; if one is not available yet, registers the rank as a waiter and
  /// returns false.
  bool ready(int rank, const Action& step, double& start) {
    const auto arrived = [&](Result result, int chunk) {
      const std::size_t input = slot(result, chunk, step.microbatch);
      if (done_at_[input] == kNotYet) {
        next_waiter_[size(rank)] = std::exchange(first_waiter_[input], rank);
        return false;
      }
      start = std::max(start, done_at_[input] + (rank_of(chunk) == rank ? 0 : costs_.transfer));
      return true;
    };
    const auto all = [&](Result result, const std::vector<int>& chunks) {
      return std::ranges::all_of(chunks, [&](int chunk) { return arrived(result, chunk); });
    };
    switch (step.op) {
      case ActionKind::F: return all(kOutput, before_[size(step.chunk)]);
      case ActionKind::B:
      case ActionKind::I: return arrived(kOutput, step.chunk) && all(kInputGrad, after_[size(step.chunk)]);
      case ActionKind::W: return arrived(kInputGrad, step.chunk);
    }
    throw InternalError("schedule: unknown op");
  }

  void finish(int rank, const Action& step, double start) {
    RankReplay& r = result_.ranks[size(rank)];
    const double duration = cost(step.op) / result_.chunks_per_rank;
    r.steps.push_back({start, start + duration});
    r.busy += duration;
    if (step.op == ActionKind::F) {
      live_of(r, +1, +1);
      publish(kOutput, step, start + duration);
    }
    if (step.op == ActionKind::I || step.op == ActionKind::B) publish(kInputGrad, step, start + duration);
    if (step.op == ActionKind::W || step.op == ActionKind::B) publish(kWeightGrad, step, start + duration);
    if (step.op == ActionKind::I) live_of(r, -1, 0);
    if (step.op == ActionKind::W) live_of(r, 0, -1);
    if (step.op == ActionKind::B) live_of(r, -1, -1);
  }

  double cost(ActionKind op) const {
    const std::array by_op{costs_.F, costs_.I + costs_.W, costs_.I, costs_.W};
    return by_op[static_cast<std::size_t>(op)];
  }

  void live_of(RankReplay& r, int live, int held) {
    auto& [now_live, now_held] = live_[size(static_cast<int>(&r - result_.ranks.data()))];
    now_live += live;
    now_held += held;
    r.peak_live = std::max(r.peak_live, now_live);
    r.peak_held = std::max(r.peak_held, now_held);
  }

  void publish(Result result, const Action& step, double when) {
    const std::size_t output = slot(result, step.chunk, step.microbatch);
    done_at_[output] = when;
    for (int waiter = std::exchange(first_waiter_[output], kNobody); waiter != kNobody;)
      runnable_.push_back(std::exchange(waiter, std::exchange(next_waiter_[size(waiter)], kNobody)));
  }

  void check(int rank, std::size_t at, const Action& step) const {
    const auto fail = [&](const auto&... why) {
      throw InternalError(
          text("schedule ", schedule_.name, ": pp rank ", rank, ", step ", at, " (", str(step), "): ", why...));
    };
    if (!is_chunk(step.chunk)) fail("there are only ", schedule_.chunks(), " chunks");
    if (rank_of(step.chunk) != rank) fail("chunk ", step.chunk, " is on pp rank ", rank_of(step.chunk));
    if (step.microbatch < 0 || step.microbatch >= schedule_.microbatches)
      fail("there are only ", schedule_.microbatches, " microbatches");
    const auto done = [&](Result result) { return done_at_[slot(result, step.chunk, step.microbatch)] != kNotYet; };
    if (step.op == ActionKind::F && done(kOutput)) fail("this forward ran before");
    if ((step.op == ActionKind::I || step.op == ActionKind::B) && done(kInputGrad))
      fail("this input gradient was computed before");
    if ((step.op == ActionKind::W || step.op == ActionKind::B) && done(kWeightGrad))
      fail("this weight gradient was computed before");
  }

  void check_finished() const {
    for (int r = 0; r < schedule_.ranks(); ++r) {
      const Program& program = schedule_.programs[size(r)];
      const std::size_t next = next_step_[size(r)];
      require(next == program.size(), "schedule deadlock: pp rank ", r, " never gets past step ", next, " (",
              next < program.size() ? str(program[next]) : "", "), which waits for ",
              next < program.size() ? awaited(program[next]) : "");
    }
  }

  /// The first input of `step` that never arrived.
  std::string awaited(const Action& step) const {
    const auto missing = [&](Result result, int chunk) {
      return done_at_[slot(result, chunk, step.microbatch)] == kNotYet;
    };
    const auto name = [&](const char* what, int chunk) {
      return text("the ", what, " of chunk ", chunk, ", microbatch ", step.microbatch, ", from pp rank ",
                  rank_of(chunk));
    };
    if (step.op == ActionKind::W) return name("input gradient", step.chunk);
    if (step.op != ActionKind::F && missing(kOutput, step.chunk)) return name("forward", step.chunk);
    for (const int chunk : step.op == ActionKind::F ? before_[size(step.chunk)] : after_[size(step.chunk)])
      if (missing(step.op == ActionKind::F ? kOutput : kInputGrad, chunk))
        return name(step.op == ActionKind::F ? "forward" : "input gradient", chunk);
    return "nothing";
  }

  void check_complete() const {
    constexpr std::array kWhat{"forward", "input gradient", "weight gradient"};
    for (int chunk = 0; chunk < schedule_.chunks(); ++chunk)
      for (int m = 0; m < schedule_.microbatches; ++m)
        for (const Result result : {kOutput, kInputGrad, kWeightGrad})
          require(done_at_[slot(result, chunk, m)] != kNotYet, "schedule ", schedule_.name, ": pp rank ",
                  rank_of(chunk), " never computes the ", kWhat[result], " of chunk ", chunk, ", microbatch ", m);
  }

  void summarise() {
    double busiest = 0;
    for (RankReplay& r : result_.ranks) {
      if (r.steps.empty()) continue;
      r.idle = r.steps.back().end - r.steps.front().start - r.busy;
      result_.makespan = std::max(result_.makespan, r.steps.back().end);
      result_.bubble = std::max(result_.bubble, r.idle);
      busiest = std::max(busiest, r.busy);
    }
    result_.bubble_fraction = busiest > 0 ? result_.bubble / busiest : 0;
  }

  const Schedule& schedule_;
  const ActionCosts& costs_;
  std::vector<std::vector<int>> before_, after_;  // neighbours of a chunk
  std::vector<double> done_at_;                   // by slot
  std::vector<int> first_waiter_;                 // by slot: head of the list of waiting ranks; linked by next_waiter_
  std::vector<int> next_waiter_;                  // by rank
  std::vector<std::size_t> next_step_;            // by rank
  std::vector<int> runnable_;
  std::vector<std::array<int, 2>> live_ = std::vector<std::array<int, 2>>(size(schedule_.ranks()));  // live, held now
  Replay result_;
};

}  // namespace

Replay replay(const Schedule& schedule, const ActionCosts& costs) { return Player(schedule, costs).run(); }

}  // namespace trireme::schedule
