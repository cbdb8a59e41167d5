#pragma once
// Setup of a rank before training: process options, and checks of the inputs.
#include <string>
#include <vector>

#include "trireme/runtime/process_setup.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"

namespace trireme {

/// The process-wide libtorch settings of a rank.
ProcessOptions process_options(Config config, const ParallelContext& context, const Variables& variables);

/// Checks all inputs in the config that can be checked without ranks: token files, tokenizer, initial weights.
/// DataError, ConfigError, CheckpointError. Returns warnings.
std::vector<std::string> check_inputs(const Config& config);

/// What the config asks for and ranks on `device` cannot do: ConfigError.
void check_device(const Config& config, at::Device device);
/// The part of it that is about precision.matmul.
void check_products(const Config& config, at::Device device);

}  // namespace trireme
