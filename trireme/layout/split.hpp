#pragma once
// Partitioning one dimension: layers over pipeline stages, tokens over cp ranks, buffer elements over ranks.
#include <cstdint>
#include <vector>

#include "trireme/layout/slices.hpp"

namespace trireme {

/// The layers of each pipeline chunk, contiguous, at least one each. `costs` has one entry per layer; the embedding's
/// `first_cost` is added to the first chunk, the head's `last_cost` to the last.
/// Minimises the largest chunk cost; among those splits the sum of squared costs, so that the other chunks are balanced
/// too; among those, earlier chunks get fewer layers, because they hold activations of more microbatches.
std::vector<Range> layers_over_stages(const std::vector<double>& costs, int num_chunks, double first_cost = 0,
                                      double last_cost = 0);

enum class CpSplit { zigzag, contiguous };

/// The positions of a cp rank, ascending. Note [Zig-zag split]: the sequence is split into 2 cp parts and rank i gets
/// parts i and 2 cp - 1 - i, so that every rank has the same number of causal (query, key) pairs.
/// With cp = 1 that is the whole sequence, of any length.
std::vector<Range> tokens_over_cp(std::int64_t seq_len, int cp, int cp_rank, CpSplit split = CpSplit::zigzag);

/// The number of (query, key) pairs with key <= query, for queries at these positions.
std::int64_t causal_work(const std::vector<Range>& queries);

}  // namespace trireme
