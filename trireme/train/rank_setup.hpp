#pragma once
// Setup of a rank before training: process options, and checks of the inputs.
#include <string>

#include "trireme/runtime/process_setup.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"

namespace trireme {

/// The process-wide libtorch settings of a rank.
ProcessOptions process_options(Config config, const ParallelContext& context, const Variables& variables);

/// Checks all inputs in the config that can be checked without ranks: token files, tokenizer, initial weights.
/// DataError, ConfigError, CheckpointError.
void check_inputs(const Config& config);

}  // namespace trireme
