#pragma once
// What a config will take of a rank's memory, before anything is started. Formulas over shapes, no measurements.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"

namespace trireme::planner {

/// Elements of each tensor of a unit on one rank. A unit is what ZeRO-3 gathers and frees at once.
using UnitTensors = std::vector<std::int64_t>;
std::int64_t elements(const UnitTensors& unit);

/// The parameters that one rank of tp keeps, before ZeRO: matrices and the vocabulary cut, norms and the biases of
/// outputs whole.
struct LocalParameters {
  UnitTensors embedding;  // with learned positions
  UnitTensors layer;      // one of them: all are alike
  UnitTensors head;       // last norm, and the head's weight unless it is the embedding's
  std::int64_t layers = 0;
  std::int64_t head_weight = 0;  // the matrix in front of the loss, whosever it is: v h, v = ceil(V / tp)

  std::int64_t total() const { return elements(embedding) + layers * elements(layer) + elements(head); }
};
/// Expects derived values (derive.hpp) and a tp that divides the heads and the MLP's width. ConfigError for experts.
LocalParameters local_parameters(const ModelConfig& model, std::int64_t tp);

/// Bytes of one rank. Kernels' workspace, the allocator's slack and what a process takes for itself are not in it.
struct MemoryPlan {
  double weights = 0;      // in the dtype that the model computes in
  double gradients = 0;    // in precision.accumulate; without contiguous_gradients also as autograd leaves them
  double master = 0;       // the optimizer's copy of the weights, where it is of another dtype
  double states = 0;       // moments
  double activations = 0;  // from forward to backward, of one microbatch
  double logits = 0;       // a tile of them in float32, and the head's gradient, kept from forward to backward
  double buffers = 0;      // gradients on their way
  double live_units = 0;   // ZeRO-3: gathered weights

  double total() const { return weights + gradients + master + states + activations + logits + buffers + live_units; }
};
/// Expects derived values; an open dp counts as one. `compute_dtype` is what "auto" becomes on the device. ConfigError
/// for pipelines and experts, which are not predicted yet.
MemoryPlan predict_memory(const Config& config, const std::string& compute_dtype = "float32", bool on_gpu = false);

/// Tokens whose logits exist at a time. A CPU's caches like few, a GPU's many multipliers need work.
std::int64_t loss_tile_tokens(bool on_gpu);

/// "predicted 41 MiB/rank: weights 1 · gradients 2 · states 3 · activations 33 · logits 2": whole numbers of one unit;
/// what would be 0 is left out. Master weights count as states, as ZeRO counts them.
std::string describe(const MemoryPlan& plan);

}  // namespace trireme::planner
