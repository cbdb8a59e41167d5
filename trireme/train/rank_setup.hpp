#pragma once
// What a rank does before it trains.
#include <string>

#include "trireme/runtime/process_setup.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"

namespace trireme {

/// What the process of a rank sets for all of libtorch.
ProcessOptions process_options(Config config, const ParallelContext& context, const Variables& variables);

/// Everything that the config names and that can be looked at without ranks: token files, tokenizer, weights to start
/// from. DataError, ConfigError, CheckpointError.
void check_inputs(const Config& config);

/// Rank 0's words (up to 4,095 bytes), on every rank. A call of all ranks.
std::string broadcast_text(const std::string& words, const ParallelContext& context);

}  // namespace trireme
