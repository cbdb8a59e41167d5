#pragma once
// Schedules for models that are any DAG of computations: which of them form a chunk, and when each chunk runs.
#include <vector>

#include "trireme/schedule/schedule.hpp"

namespace trireme::schedule {

/// Chunks in topological order: every edge leads to a higher number. No two edges are the same.
struct ChunkGraph {
  int ranks = 1;
  std::vector<int> rank_of_chunk{};
  std::vector<Edge> edges{};
};

struct JoinedNodes {
  ChunkGraph graph;
  std::vector<int> chunk_of_node;
};

/// Joins the nodes of a DAG, numbered in topological order, to chunks: each on one rank, no cycle between chunks, and
/// as few of them as possible (Note [Fewest chunks]). Within a chunk the nodes run in the order of their numbers.
JoinedNodes join_nodes(int ranks, const std::vector<int>& rank_of_node, const std::vector<Edge>& edges);

// Both accept any number of microbatches >= 1, and equal the schedules of generate.hpp if the chunks are a chain with
// one chunk on each rank. The backwards of a chunk are in the order of the microbatches.

/// The forwards chunk by chunk, then the backwards in the opposite order of chunks.
Schedule all_forward_all_backward(const ChunkGraph& graph, int microbatches);
/// A rank that is free runs a backward if one is ready, else a forward. A chunk with d chunks on the longest path from
/// it to the end (itself included) holds the activations of at most d microbatches.
Schedule one_f_one_b(const ChunkGraph& graph, int microbatches);

}  // namespace trireme::schedule
