#pragma once
// Finds the layouts of a model on a number of GPUs that train fastest, among those that fit.
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/planner/memory.hpp"
#include "trireme/planner/step_time.hpp"

namespace trireme::planner {

struct PlanQuestion {
  Config config;  // with derived values: model, batch, precision; its layout does not matter
  Machine machine;
  Software software;
  double memory_bytes = 0;  // that a rank may use
  /// Whether a layout is allowed, by rules of its own; null: all are.
  std::function<bool(const Config&)> accepts = nullptr;
};

/// A layout, and what is predicted of it.
struct Plan {
  Config config;
  StepTime time;
  double tokens_per_second = 0;  // of all GPUs
  double mfu = 0;
  double memory_bytes = 0;  // predicted, of a rank, with what the process needs
  MemoryPlan memory;
};

/// Of one layout: that of the config.
Plan predict_plan(const Config& config, const Machine& machine, const Software& software);

/// What a process needs beside the predictions of memory.hpp: the context of the GPU, libraries, buffers of NCCL,
/// fragmentation.
double process_bytes(const MemoryPlan& memory);

struct FoundPlans {
  std::vector<Plan> plans;     // fastest first; no two with the same dp, tp, pp, cp and ep
  std::int64_t layouts = 0;    // that were compared
  std::int64_t too_large = 0;  // of those that are faster than the last plan: they do not fit
};

/// Degrees are powers of two (and what is left for dp), tensor parallelism stays within a host. At most `count` plans.
FoundPlans find_plans(const PlanQuestion& question, std::size_t count);

/// The keys of a plan's layout, as settings of a config: {"parallelism.tp", "4"}.
std::vector<std::pair<std::string, std::string>> settings_of(const Config& config);
/// "dp 16 · tp 4 · pp 2 (interleaved-1f1b, 2 stages per rank) · zero 1 · 1 x 32 microbatches · selective recompute".
std::string layout_text(const Config& config);
/// "1.24 s per step · 10.8K tokens/s per GPU · MFU 45 % · 61 GiB of 79.1 GiB" of a plan.
std::string prediction_text(const Plan& plan, const Machine& machine);
/// In one line: what costs the plan most, next to the best one.
std::string why_slower(const Plan& plan, const Plan& best);

}  // namespace trireme::planner
