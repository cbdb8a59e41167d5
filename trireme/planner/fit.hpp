#pragma once
// What to change in a config so that it fits a memory size, by the predictions of memory.hpp.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/planner/memory.hpp"

namespace trireme::planner {

struct FittingChange {
  std::string settings;  // "parallelism.zero = 3, training.micro_batch_size = 2"
  double bytes = 0;      // predicted per rank
};

/// The changes that cost least speed and are predicted to need at most `bytes` per rank, on the same number of ranks
/// and with the same batch: at most `count`, none of which contains another. If none fits, more hosts or GPUs with
/// ZeRO 3 are tried. Expects derived values; an unset dp counts as 1. Empty also for configs whose memory is not
/// predicted yet.
std::vector<FittingChange> nearest_that_fit(const Config& config, const std::string& compute_dtype, bool on_gpu,
                                            double bytes, std::size_t count = 2);

}  // namespace trireme::planner
