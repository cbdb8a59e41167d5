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

/// A flat buffer sharded over ranks: rank r owns [r * per_rank, (r + 1) * per_rank); the rest from numel on is padding.
struct ElementSplit {
  std::int64_t numel = 0, per_rank = 0;
  int ranks = 1;

  std::int64_t padded_total() const { return per_rank * ranks; }
  Range padded(int rank) const;
  Range real(int rank) const;  // empty if the rank has only padding
};

/// Equal parts, each the smallest possible multiple of `alignment` elements.
ElementSplit elements_over_ranks(std::int64_t numel, int ranks, std::int64_t alignment = 1);

}  // namespace trireme
