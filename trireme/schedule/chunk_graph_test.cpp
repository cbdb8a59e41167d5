#include "trireme/schedule/chunk_graph.hpp"

#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "trireme/base/error.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/schedule/replay.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::schedule {
namespace {

struct Nodes {
  int ranks;
  std::vector<int> rank_of;
  std::vector<Edge> edges;
};

Nodes any_nodes(int most) {
  const int count = *rc::gen::inRange(1, most + 1), ranks = *rc::gen::inRange(1, 6), sparse = *rc::gen::inRange(1, 5);
  Nodes nodes{ranks, {}, {}};
  for (int i = 0; i < count; ++i) {
    nodes.rank_of.push_back(*rc::gen::inRange(0, ranks));
    for (int j = 0; j < i; ++j)
      if (*rc::gen::inRange(0, sparse + 1) == 0) nodes.edges.push_back({j, i});
  }
  return nodes;
}

/// By trying all orders: the least number of runs on one rank.
int fewest_by_force(const Nodes& nodes) {
  const auto count = nodes.rank_of.size();
  constexpr int kMany = 1000;
  std::vector<std::vector<int>> least(std::size_t{1} << count,
                                      std::vector<int>(static_cast<std::size_t>(nodes.ranks), kMany));
  for (int& runs : least[0]) runs = 1;  // the first one may be on any rank
  for (std::size_t done = 0; done < least.size(); ++done)
    for (std::size_t i = 0; i < count; ++i) {
      const bool waits = std::ranges::any_of(nodes.edges, [&](const Edge& edge) {
        return edge.to == static_cast<int>(i) && (done >> edge.from & 1U) == 0;
      });
      if ((done >> i & 1U) != 0 || waits) continue;
      const auto rank = static_cast<std::size_t>(nodes.rank_of[i]);
      int& runs = least[done | std::size_t{1} << i][rank];
      for (std::size_t last = 0; last < least[done].size(); ++last)
        runs = std::min(runs, least[done][last] + (last == rank ? 0 : 1));
    }
  return *std::ranges::min_element(least.back());
}

TEST(ChunkGraph, NodesAreJoinedToTheFewestChunks) {
  EXPECT_TRUE(rc::check([] {
    const Nodes nodes = any_nodes(9);
    const auto [graph, chunk_of] = join_nodes(nodes.ranks, nodes.rank_of, nodes.edges);
    for (std::size_t i = 0; i < chunk_of.size(); ++i)
      RC_ASSERT(graph.rank_of_chunk.at(static_cast<std::size_t>(chunk_of[i])) == nodes.rank_of[i]);
    for (const Edge& edge : nodes.edges) {
      const Edge between{chunk_of[static_cast<std::size_t>(edge.from)], chunk_of[static_cast<std::size_t>(edge.to)]};
      RC_ASSERT(between.from == between.to || std::ranges::count(graph.edges, between) == 1);
    }
    for (const Edge& edge : graph.edges) RC_ASSERT(edge.from < edge.to);  // no cycle
    RC_ASSERT(static_cast<int>(graph.rank_of_chunk.size()) == fewest_by_force(nodes));
  }));
}

TEST(ChunkGraph, RunsOfBlocksOnARankAreOneChunk) {
  // Rank 0 twice, then rank 1; node 2 has the labels, which the last node needs.
  const JoinedNodes chain = join_nodes(2, {0, 0, 1, 1, 1}, {{0, 1}, {1, 3}, {2, 4}, {3, 4}});
  EXPECT_EQ(chain.chunk_of_node, (std::vector{0, 0, 1, 1, 1}));
  EXPECT_EQ(chain.graph.edges, (std::vector<Edge>{{0, 1}}));
  // Up and down again: the two nodes of rank 0 cannot be one chunk.
  const JoinedNodes v = join_nodes(2, {0, 1, 0}, {{0, 1}, {1, 2}, {0, 2}});
  EXPECT_EQ(v.chunk_of_node, (std::vector{0, 1, 2}));
  EXPECT_EQ(v.graph.edges, (std::vector<Edge>{{0, 1}, {1, 2}, {0, 2}}));
}

TEST(ChunkGraph, AChainHasTheUsualSchedules) {
  for (int p = 1; p <= 9; ++p)
    for (int m = 1; m <= 20; ++m) {
      ChunkGraph graph{.ranks = p, .edges = chain(p)};
      for (int r = 0; r < p; ++r) graph.rank_of_chunk.push_back(r);
      ASSERT_EQ(one_f_one_b(graph, m), make_schedule("1f1b", p, m)) << "p=" << p << " m=" << m;
      ASSERT_EQ(all_forward_all_backward(graph, m), make_schedule("afab", p, m)) << "p=" << p << " m=" << m;
    }
}

TEST(ChunkGraph, OneFOneBOfAVAndOfADiamond) {
  const ChunkGraph v{.ranks = 2, .rank_of_chunk = {0, 1, 0}, .edges = {{0, 1}, {1, 2}}};
  EXPECT_EQ(str(one_f_one_b(v, 3)),
            "schedule 1f1b microbatches 3\nchunks on ranks 0 1 0\n"
            "rank 0: 0F0 0F1 2F0 2B0 2F1 2B1 0B0 0B1 0F2 2F2 2B2 0B2\nrank 1: 1F0 1F1 1B0 1B1 1F2 1B2\n");
  const ChunkGraph diamond{.ranks = 3, .rank_of_chunk = {0, 1, 2, 0}, .edges = {{0, 1}, {0, 2}, {1, 3}, {2, 3}}};
  EXPECT_EQ(str(all_forward_all_backward(diamond, 2)),
            "schedule afab microbatches 2\nchunks on ranks 0 1 2 0\nedges 0 1 0 2 1 3 2 3\n"
            "rank 0: 0F0 0F1 3F0 3F1 3B0 3B1 0B0 0B1\nrank 1: 1F0 1F1 1B0 1B1\nrank 2: 2F0 2F1 2B0 2B1\n");
}

// Replay throws on a deadlock, and unless each microbatch passes each chunk once.
TEST(ChunkGraph, AnyDagRunsWithoutDeadlockAndHoldsNoMoreThanItsDepth) {
  EXPECT_TRUE(rc::check([] {
    const Nodes nodes = any_nodes(14);
    const ChunkGraph graph = join_nodes(nodes.ranks, nodes.rank_of, nodes.edges).graph;
    const int microbatches = *rc::gen::inRange(1, 10);
    std::vector<int> depth(graph.rank_of_chunk.size(), 1);
    for (std::size_t c = depth.size(); c-- > 0;)
      for (const Edge& edge : graph.edges)
        if (edge.from == static_cast<int>(c))
          depth[c] = std::max(depth[c], depth[static_cast<std::size_t>(edge.to)] + 1);

    for (const Schedule& schedule : {all_forward_all_backward(graph, microbatches), one_f_one_b(graph, microbatches)}) {
      const Replay replayed = replay(schedule);
      RC_ASSERT(parse_schedule(str(schedule)) == schedule);
      double work = 0;
      for (const RankReplay& rank : replayed.ranks) work += rank.busy;
      RC_ASSERT(replayed.makespan <= work + 1e-9);
      for (const Program& program : schedule.programs) {
        std::map<int, int> forwards, backwards;  // by chunk
        for (const Action& action : program) {
          int& count = (action.op == ActionKind::F ? forwards : backwards)[action.chunk];
          RC_ASSERT(action.microbatch == count);  // in the order of the microbatches
          ++count;
          const int held = forwards[action.chunk] - backwards[action.chunk];
          RC_ASSERT(schedule.name == "afab" || held <= depth[static_cast<std::size_t>(action.chunk)]);
        }
      }
    }
  }));
}

TEST(ChunkGraph, WhatIsNoDagIsRefused) {
  const auto error = [](int ranks, std::vector<int> rank_of, std::vector<Edge> edges) {
    return message_of<InternalError>([&] { join_nodes(ranks, rank_of, edges); });
  };
  EXPECT_EQ(error(2, {0, 2}, {}), "node 1 of a graph is on pp rank 2, but there are 2");
  EXPECT_EQ(error(1, {0, 0}, {{1, 0}}), "the edge 1 -> 0 of a graph with 2 nodes does not lead to a higher number");
  EXPECT_EQ(error(1, {0, 0}, {{1, 2}}), "the edge 1 -> 2 of a graph with 2 nodes does not lead to a higher number");
  EXPECT_EQ(message_of<ConfigError>([] { one_f_one_b(ChunkGraph{.rank_of_chunk = {0}}, 0); }),
            "schedule 1f1b: microbatches = 0: must be at least 1");
}

}  // namespace
}  // namespace trireme::schedule
