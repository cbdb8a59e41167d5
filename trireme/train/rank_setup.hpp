#pragma once
// What a rank does before it trains.
#include <string>

#include "trireme/runtime/rank/parallel_context.hpp"

namespace trireme {

/// A launcher of ours gives every rank its share of the cores; under another one, the ranks of a host share them here.
/// The same number everywhere, because sums of libtorch's own depend on it.
void share_cores(const Environment& environment, const Variables& variables);

/// Products of f32 and f64 on the CPU by BLAS alone, in this process. On aarch64 libtorch gives those of a linear layer's
/// forward to oneDNN, which copies the weight first: slower, and the head's copy is the largest tensor of a step.
void multiply_by_blas(Config config, at::Device device);

/// Everything that the config names and that can be looked at without ranks: token files, tokenizer, weights to start
/// from. DataError, ConfigError, CheckpointError.
void check_inputs(const Config& config);

/// Rank 0's words (up to 4,095 bytes), on every rank. A call of all ranks.
std::string broadcast_text(const std::string& words, const ParallelContext& context);

}  // namespace trireme
