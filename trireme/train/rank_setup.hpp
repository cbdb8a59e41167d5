#pragma once
// What a rank does before it trains.
#include <string>

#include "trireme/runtime/parallel_context.hpp"

namespace trireme {

/// A launcher of ours gives every rank its share of the cores; under another one, the ranks of a host share them here.
/// The same number everywhere, because sums of libtorch's own depend on it.
void share_cores(const Environment& environment, const Variables& variables);

/// Everything that the config names and that can be looked at without ranks: token files, tokenizer, weights to start
/// from. DataError, ConfigError, CheckpointError.
void check_inputs(const Config& config);

/// Rank 0's words (up to 4,095 bytes), on every rank. A call of all ranks.
std::string told_by_rank_0(const std::string& words, const ParallelContext& context);

}  // namespace trireme
