#pragma once
// Predicts the memory per rank of a config before anything is started. Formulas over shapes, no measurements.
#include <cstdint>
#include <string>

#include "trireme/config/schema/config.hpp"

namespace trireme::planner {

/// Bytes per rank, without kernel workspaces, allocator fragmentation and the process's own memory.
struct MemoryPlan {
  double weights = 0;      // in the compute dtype
  double gradients = 0;    // in precision.accumulate; without contiguous_gradients also those of autograd
  double master = 0;       // master weights, if their dtype differs
  double states = 0;       // optimizer moments
  double activations = 0;  // stored from forward to backward
  double logits = 0;       // a tile of them (float32 on a CPU), and the head's weight gradient until backward
  double buffers = 0;      // gradients in communication, and what the backward of one layer needs beside its inputs
  double live_units = 0;   // ZeRO-3: gathered weights

  double total() const { return weights + gradients + master + states + activations + logits + buffers + live_units; }
};
/// Expects derived values; an unset dp counts as 1. `compute_dtype` is what "auto" resolves to on the device.
/// In a pipeline, that of the rank with the most. Experts are assumed to have equal numbers of tokens.
MemoryPlan predict_memory(const Config& config, const std::string& compute_dtype = "float32", bool on_gpu = false);

/// What a rank saves in a checkpoint, on average: weights in the optimizer's precision and its states (of frozen
/// parameters the weights alone), each element by one rank. Expects actual dtypes, not "auto".
double predict_saved_bytes(const Config& config);

/// Tokens per tile of the loss. Small for a CPU's caches, large to keep a GPU busy.
std::int64_t loss_tile_tokens(bool on_gpu);

/// "predicted 41 MiB/rank: weights 1 · gradients 2 · states 3 · activations 33 · logits 2": integers in one unit; zeros
/// are omitted. Master weights count as states, as in the ZeRO paper.
std::string describe(const MemoryPlan& plan);

}  // namespace trireme::planner
