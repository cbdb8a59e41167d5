#pragma once
// Predicts the time of a training step from shapes, a machine and a trainer's facts. Formulas: docs/planning.md.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/describe/counts.hpp"
#include "trireme/planner/machine.hpp"
#include "trireme/planner/software.hpp"

namespace trireme::planner {

/// A decoder, its batch and its layout: what the time of a step follows from.
struct StepWork {
  std::int64_t layers = 1, hidden = 1, heads = 1, kv_heads = 1, head_dim = 1;
  std::int64_t mlp_width = 1, mlp_matrices = 3, vocab = 1;  // 3: with a gate
  bool tied = false;
  std::int64_t experts = 0, experts_per_token = 0, expert_width = 0, shared_width = 0;

  std::int64_t seq_len = 1, micro_batch = 1, microbatches = 1;
  std::int64_t window = 0;  // of attention; 0: none

  int dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, zero = 1, replicate = 1;
  std::string schedule = "1f1b";
  int virtual_stages = 1;
  bool sequence_parallel = true;
  bool reshards = true;  // ZeRO 3 frees parameters after forward
  config::Recompute recompute = config::Recompute::none;
  bool fp8 = false;
  double element_bytes = 2;  // of weights and activations
  /// Layers of the fullest stage, and of the last one, which has the head.
  std::int64_t most_layers = 1, last_layers = 1;

  int gpus() const { return dp * tp * pp * cp; }
  double tokens_per_step() const {
    return static_cast<double>(seq_len) * static_cast<double>(micro_batch) * static_cast<double>(microbatches) * dp;
  }
};

/// Splits layers evenly: most_layers and last_layers.
void split_evenly(StepWork& work);
/// Of a config with derived values; an unset dp counts as 1.
StepWork work_of(const Config& config);

/// Parameters on a rank of the fullest stage: those that all ranks of dp and cp have, and those of experts.
std::pair<double, double> parameters_of_rank(const StepWork& work);

/// FLOPs of a step that MFU counts: without recomputation, and of attention those below the diagonal.
double model_flops(const StepWork& work);

/// Seconds of a step on the busiest rank.
struct StepTime {
  double products = 0, attention = 0, memory_bound = 0;  // of the layers
  double head = 0;                                       // and the loss
  double tensor_parallel = 0, context_parallel = 0, expert_parallel = 0;
  double host = 0;  // the GPU waits for the host
  double bubble = 0, transfers = 0;
  double data_parallel = 0;  // that backward does not hide; ZeRO 3: gathers too
  double optimizer = 0;
  double other = 0;  // per step; stragglers

  double total() const;
  double communication() const {
    return tensor_parallel + context_parallel + expert_parallel + transfers + data_parallel;
  }
  /// Each part by the name that tables show.
  std::vector<std::pair<std::string, double>> parts() const;
};

StepTime predict_step(const StepWork& work, const Machine& machine, const Software& software);

/// Of the dense bfloat16 peak, also with fp8.
double mfu(const StepWork& work, const StepTime& time, const Machine& machine);

}  // namespace trireme::planner
