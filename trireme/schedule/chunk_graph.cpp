#include "trireme/schedule/chunk_graph.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::schedule {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

using Neighbours = std::vector<std::vector<int>>;

/// For each node those at the other end of its edges.
Neighbours neighbours(std::size_t nodes, const std::vector<Edge>& edges, int Edge::* own, int Edge::* other) {
  Neighbours out(nodes);
  for (const Edge& edge : edges) out[at(edge.*own)].push_back(edge.*other);
  return out;
}

void check_graph(int ranks, const std::vector<int>& rank_of, const std::vector<Edge>& edges) {
  const int nodes = static_cast<int>(rank_of.size());
  for (int i = 0; i < nodes; ++i)
    require(rank_of[at(i)] >= 0 && rank_of[at(i)] < ranks, "node ", i, " of a graph is on pp rank ", rank_of[at(i)],
            ", but there are ", ranks);
  for (const Edge& edge : edges)
    require(edge.from >= 0 && edge.from < edge.to && edge.to < nodes, "the edge ", edge.from, " -> ", edge.to,
            " of a graph with ", nodes, " nodes does not lead to a higher number");
}

// Note [Fewest chunks]
// Chunks without a cycle can be executed one after the other; so the fewest are found by executing the nodes in runs,
// each on one rank, as long as possible: a longer run never makes more of them necessary. What is left to choose is the
// rank of each run. The search keeps, for each number of runs, the sets of nodes that can be done by then, without
// those that are part of another one. A pipeline has a few of them. The number kept is bounded because in general the
// problem is NP-hard (the shortest common supersequence is a case of it); beyond it there may be more chunks than
// necessary.
constexpr std::size_t kMaxSearched = 64;

struct Runs {
  std::vector<bool> done{};
  std::vector<int> rank_of_run{};
  std::vector<int> run_of_node{};
  int nodes = 0;  // done
};

/// With one more run: all nodes of the rank that do not wait for another rank. Empty if there are none.
std::optional<Runs> with_run(Runs runs, int rank, const std::vector<int>& rank_of_node, const Neighbours& before) {
  const int done_before = runs.nodes;
  for (std::size_t i = 0; i < rank_of_node.size(); ++i) {
    if (runs.done[i] || rank_of_node[i] != rank) continue;
    if (!std::ranges::all_of(before[i], [&](int node) { return runs.done[at(node)]; })) continue;
    runs.done[i] = true;
    runs.run_of_node[i] = static_cast<int>(runs.rank_of_run.size());
    ++runs.nodes;
  }
  if (runs.nodes == done_before) return std::nullopt;
  runs.rank_of_run.push_back(rank);
  return runs;
}

/// The most advanced ones, none with nodes that another one has all done too.
std::vector<Runs> most_advanced(std::vector<Runs> all) {
  std::ranges::stable_sort(all, std::ranges::greater{}, &Runs::nodes);
  std::vector<Runs> kept;
  for (Runs& one : all) {
    const bool needed = std::ranges::none_of(kept, [&](const Runs& other) {
      for (std::size_t i = 0; i < one.done.size(); ++i)
        if (one.done[i] && !other.done[i]) return false;
      return true;
    });
    if (needed) kept.push_back(std::move(one));
    if (kept.size() == kMaxSearched) break;
  }
  return kept;
}

Runs fewest_runs(int ranks, const std::vector<int>& rank_of_node, const Neighbours& before) {
  const std::size_t nodes = rank_of_node.size();
  std::vector<Runs> level{{.done = std::vector<bool>(nodes), .run_of_node = std::vector<int>(nodes)}};
  while (at(level.front().nodes) < nodes) {
    std::vector<Runs> next;
    for (const Runs& runs : level)
      for (int rank = 0; rank < ranks; ++rank)
        if (auto longer = with_run(runs, rank, rank_of_node, before)) next.push_back(std::move(*longer));
    level = most_advanced(std::move(next));
  }
  return std::move(level.front());
}

Schedule empty_schedule(const char* name, const ChunkGraph& graph, int microbatches) {
  require<ConfigError>(microbatches >= 1, "schedule ", name, ": microbatches = ", microbatches, ": must be at least 1");
  check_graph(graph.ranks, graph.rank_of_chunk, graph.edges);
  return {.name = name,
          .microbatches = microbatches,
          .rank_of_chunk = graph.rank_of_chunk,
          .edges = graph.edges,
          .programs = std::vector<Program>(at(graph.ranks))};
}

/// Runs the chunks in virtual time. Microbatches pass each chunk in their order, so its counts say what is next. There
/// is no deadlock: the actions of the first microbatch that is not through wait for no other one, and no limit holds
/// them back.
class GreedyOneFOneB {
 public:
  GreedyOneFOneB(const ChunkGraph& graph, int microbatches)
      : schedule_(empty_schedule("1f1b", graph, microbatches)),
        chunks_(graph.rank_of_chunk.size()),
        before_(neighbours(chunks_.size(), graph.edges, &Edge::to, &Edge::from)),
        after_(neighbours(chunks_.size(), graph.edges, &Edge::from, &Edge::to)),
        running_(at(graph.ranks)) {
    for (std::size_t c = chunks_.size(); c-- > 0;)
      for (const int next : after_[c]) chunks_[c].limit = std::max(chunks_[c].limit, 1 + chunks_[at(next)].limit);
  }

  Schedule run() {
    constexpr int kNever = std::numeric_limits<int>::max();
    for (int now = 0; now != kNever;) {
      // Everything that ends now does so before the next actions are chosen.
      for (auto& running : running_)
        if (running && running->end == now) finish(std::exchange(running, std::nullopt)->action);
      int next = kNever;
      for (std::size_t r = 0; r < running_.size(); ++r) {
        if (!running_[r])
          if (const auto action = best_of(static_cast<int>(r))) {
            schedule_.programs[r].push_back(*action);
            running_[r] = {*action, now + (action->op == ActionKind::F ? kForwardTime : kBackwardTime)};
          }
        if (running_[r]) next = std::min(next, running_[r]->end);
      }
      now = next;
    }
    return std::move(schedule_);
  }

 private:
  static constexpr int kForwardTime = 1, kBackwardTime = 2;

  struct Chunk {
    int limit = 1;  // microbatches between forward and backward
    int forwards = 0, backwards = 0;
  };
  struct Running {
    Action action;
    int end;
  };

  void finish(const Action& action) {
    Chunk& chunk = chunks_[at(action.chunk)];
    ++(action.op == ActionKind::F ? chunk.forwards : chunk.backwards);
  }

  bool can_forward(int c) const {
    const Chunk& chunk = chunks_[at(c)];
    return chunk.forwards < schedule_.microbatches && chunk.forwards - chunk.backwards < chunk.limit &&
           std::ranges::all_of(before_[at(c)], [&](int b) { return chunks_[at(b)].forwards > chunk.forwards; });
  }
  bool can_backward(int c) const {
    const Chunk& chunk = chunks_[at(c)];
    return chunk.backwards < chunk.forwards &&
           std::ranges::all_of(after_[at(c)], [&](int a) { return chunks_[at(a)].backwards > chunk.backwards; });
  }

  /// Backwards first, they free memory; then the oldest microbatch; then what is farther from its end.
  std::optional<Action> best_of(int rank) const {
    std::optional<Action> best;
    const auto order = [&](const Action& a) {
      const bool forward = a.op == ActionKind::F;
      return std::tuple(forward, a.microbatch, forward ? -chunks_[at(a.chunk)].limit : -a.chunk, a.chunk);
    };
    const auto offer = [&](const Action& action) {
      if (!best || order(action) < order(*best)) best = action;
    };
    for (int c = 0; c < schedule_.chunks(); ++c) {
      if (schedule_.rank_of_chunk[at(c)] != rank) continue;
      if (can_backward(c)) offer({ActionKind::B, c, chunks_[at(c)].backwards});
      if (can_forward(c)) offer({ActionKind::F, c, chunks_[at(c)].forwards});
    }
    return best;
  }

  Schedule schedule_;
  std::vector<Chunk> chunks_;
  const Neighbours before_, after_;
  std::vector<std::optional<Running>> running_;  // by rank
};

}  // namespace

JoinedNodes join_nodes(int ranks, const std::vector<int>& rank_of_node, const std::vector<Edge>& edges) {
  check_graph(ranks, rank_of_node, edges);
  Runs runs = fewest_runs(ranks, rank_of_node, neighbours(rank_of_node.size(), edges, &Edge::to, &Edge::from));
  JoinedNodes out{.graph = {.ranks = ranks, .rank_of_chunk = std::move(runs.rank_of_run), .edges = {}},
                  .chunk_of_node = std::move(runs.run_of_node)};
  for (const Edge& edge : edges) {
    const Edge between{out.chunk_of_node[at(edge.from)], out.chunk_of_node[at(edge.to)]};
    if (between.from != between.to && std::ranges::find(out.graph.edges, between) == out.graph.edges.end())
      out.graph.edges.push_back(between);
  }
  return out;
}

Schedule all_forward_all_backward(const ChunkGraph& graph, int microbatches) {
  Schedule schedule = empty_schedule("afab", graph, microbatches);
  const int chunks = schedule.chunks();
  const auto add = [&](ActionKind op, int chunk) {
    for (int m = 0; m < microbatches; ++m)
      schedule.programs[at(schedule.rank_of_chunk[at(chunk)])].push_back({op, chunk, m});
  };
  for (int c = 0; c < chunks; ++c) add(ActionKind::F, c);
  for (int c = chunks; c-- > 0;) add(ActionKind::B, c);
  return schedule;
}

Schedule one_f_one_b(const ChunkGraph& graph, int microbatches) { return GreedyOneFOneB(graph, microbatches).run(); }

}  // namespace trireme::schedule
