#pragma once
// Predicts the memory per rank of a config before anything is started. Formulas over shapes, no measurements.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"

namespace trireme::planner {

/// The number of elements of each tensor of a unit on one rank. A unit is what ZeRO-3 gathers and frees together.
using UnitTensors = std::vector<std::int64_t>;
std::int64_t elements(const UnitTensors& unit);

/// The parameters of one tp rank, before ZeRO: matrices and the vocabulary are sharded, norms and output biases
/// replicated.
struct LocalParameters {
  UnitTensors embedding;  // including learned positions
  UnitTensors layer;      // one layer, without its experts: all are equal
  UnitTensors experts;    // of one layer
  UnitTensors head;       // last norm, and the head's weight unless it is tied
  std::int64_t layers = 0;
  std::int64_t head_weight = 0;  // the LM head matrix, tied or not: v h, v = ceil(V / tp)

  std::int64_t expert_total() const { return layers * elements(experts); }
  std::int64_t total() const {
    return elements(embedding) + layers * elements(layer) + elements(head) + expert_total();
  }
};
/// Expects derived values (derive.hpp) and degrees that divide the heads, the MLP width and the experts.
/// `expert_tp` = 0: tp.
LocalParameters local_parameters(const ModelConfig& model, std::int64_t tp, std::int64_t ep = 1,
                                 std::int64_t expert_tp = 0);

/// Bytes per rank, without kernel workspaces, allocator fragmentation and the process's own memory.
struct MemoryPlan {
  double weights = 0;      // in the compute dtype
  double gradients = 0;    // in precision.accumulate; without contiguous_gradients also those of autograd
  double master = 0;       // master weights, if their dtype differs
  double states = 0;       // optimizer moments
  double activations = 0;  // stored from forward to backward
  double logits = 0;       // a float32 tile of them, and the head's weight gradient until backward
  double buffers = 0;      // gradients in communication
  double live_units = 0;   // ZeRO-3: gathered weights

  double total() const { return weights + gradients + master + states + activations + logits + buffers + live_units; }
};
/// Expects derived values; an unset dp counts as 1. `compute_dtype` is what "auto" resolves to on the device.
/// In a pipeline, that of the rank with the most. Experts are assumed to have equal numbers of tokens.
MemoryPlan predict_memory(const Config& config, const std::string& compute_dtype = "float32", bool on_gpu = false);

/// Tokens per tile of the loss. Small for a CPU's caches, large to keep a GPU busy.
std::int64_t loss_tile_tokens(bool on_gpu);

/// "predicted 41 MiB/rank: weights 1 · gradients 2 · states 3 · activations 33 · logits 2": integers in one unit; zeros
/// are omitted. Master weights count as states, as in the ZeRO paper.
std::string describe(const MemoryPlan& plan);

}  // namespace trireme::planner
