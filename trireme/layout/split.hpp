#pragma once
// How a line of things is shared out: layers over stages, tokens over cp, elements over ranks.
#include <cstdint>
#include <vector>

#include "trireme/layout/slices.hpp"

namespace trireme {

/// The layers of each pipeline chunk, contiguous, at least one each. `costs` are those of the layers; the embedding's
/// `first_cost` counts in the first chunk, the head's `last_cost` in the last.
/// Minimises the largest cost of a chunk; of those splits the sum of the squared costs, so that the others are even
/// too; of those again the earlier chunks get fewer layers, because they keep more microbatches alive.
std::vector<Range> layers_over_stages(const std::vector<double>& costs, int num_chunks, double first_cost = 0,
                                      double last_cost = 0);

enum class CpSplit { zigzag, contiguous };

/// The positions that a cp rank keeps, ascending. Note [Zig-zag split]: the sequence is cut into 2 cp parts and rank i
/// takes parts i and 2 cp - 1 - i, so that every rank has the same number of causal (query, key) pairs.
/// With cp = 1 that is the whole sequence, of any length.
std::vector<Range> tokens_over_cp(int64_t seq_len, int cp, int cp_rank, CpSplit split = CpSplit::zigzag);

/// The number of (query, key) pairs with key <= query, for queries at these positions.
int64_t causal_work(const std::vector<Range>& queries);

/// A flat buffer over ranks: rank r keeps [r * per_rank, (r + 1) * per_rank), of which the part below numel is real.
struct ElementSplit {
  int64_t numel = 0, per_rank = 0;
  int ranks = 1;

  int64_t padded_total() const { return per_rank * ranks; }
  Range padded(int rank) const;
  Range real(int rank) const;  // empty where the rank has only padding
};

/// Equal parts, each a multiple of `alignment` elements and as small as that allows.
ElementSplit elements_over_ranks(int64_t numel, int ranks, int64_t alignment = 1);

}  // namespace trireme
