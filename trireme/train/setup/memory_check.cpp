#include "trireme/train/setup/memory_check.hpp"

#include <algorithm>

#include <c10/core/CachingDeviceAllocator.h>

#include "trireme/base/error.hpp"
#include "trireme/base/host_memory.hpp"
#include "trireme/base/human.hpp"
#include "trireme/describe/counts.hpp"
#include "trireme/planner/fit.hpp"
#include "trireme/planner/memory.hpp"
#include "trireme/train/setup/dtypes.hpp"

namespace trireme {
namespace {

// Of a process besides what is predicted: libtorch, its threads and the buffers of BLAS. Measured: 230 to 320 MiB.
constexpr double kBytesOfProcess = 300.0 * 0x1p20;
constexpr double kUsableOfGpu = 0.95;  // the allocator's blocks do not fit together perfectly

double bytes_of_rank(const MemoryBudget& budget) {
  const double share = budget.available / budget.ranks;
  return budget.on_gpu ? kUsableOfGpu * share : share - kBytesOfProcess;
}

double kept_bytes(const planner::MemoryPlan& plan) { return plan.weights + plan.gradients + plan.master + plan.states; }

std::string budget_text(const MemoryBudget& budget) {
  return text(budget.owner, " has ", human_bytes(budget.total), ", ", human_bytes(budget.available), " available",
              budget.ranks > 1 ? text(", for ", budget.ranks, " ranks") : "");
}

std::string fix_text(const Config& config, const MemoryBudget& budget, double bytes) {
  std::string fixes;
  for (const planner::FittingChange& change :
       planner::nearest_that_fit(config, config.precision.param, budget.on_gpu, bytes))
    fixes += text(fixes.empty() ? "\n  fix: " : ", or\n       ", change.settings, " (predicted ",
                  human_bytes(change.bytes), " per rank)");
  return fixes.empty() ? "\n  fix: more memory, or a smaller model" : fixes;
}

}  // namespace

MemoryBudget memory_budget(at::Device device, int ranks) {
  if (device.is_cuda()) {
    const auto [free, total] = c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
    return {.total = static_cast<double>(total),
            .available = static_cast<double>(free),
            .ranks = 1,
            .on_gpu = true,
            .owner = device.str()};
  }
  const HostMemory memory = host_memory();
  return {.total = memory.total,
          .available = memory.available,
          .ranks = ranks,
          .owner = memory.cgroup_limit ? "the control group of this process" : "this host"};
}

std::string check_memory(Config config, const MemoryBudget& budget, at::Device device) {
  if (budget.total <= 0) return "";
  resolve_dtypes(config, device);
  const planner::MemoryPlan plan = planner::predict_memory(config, config.precision.param, budget.on_gpu);
  const double kept = kept_bytes(plan), bytes = bytes_of_rank(budget);
  require<OutOfMemory>(kept <= budget.total / budget.ranks, "the model needs ", human_bytes(kept),
                       " per rank for weights, gradients and optimizer states; ", budget_text(budget),
                       " (nothing was started)", fix_text(config, budget, bytes));
  if (plan.total() <= bytes) return "";
  return text("this may run out of memory: ", planner::describe(plan), "; ", budget_text(budget),
              fix_text(config, budget, bytes));
}

void check_memory_to_verify(const Config& compared, const Config& reference, int ranks, const MemoryBudget& budget) {
  if (budget.total <= 0) return;
  const std::string& dtype = compared.precision.param;
  const planner::MemoryPlan plan = planner::predict_memory(compared, dtype, budget.on_gpu),
                            alone = planner::predict_memory(reference, dtype, budget.on_gpu);
  const double kept = ranks * kept_bytes(plan);
  // The reference is gone when the layout is built, apart from its gradients.
  const double gradients = static_cast<double>(config::count_parameters(compared.model).total()) * sizeof(double);
  const double most = std::max(alone.weights + 2 * gradients, kept + gradients);
  require<OutOfMemory>(most <= budget.total, "verify needs ", human_bytes(most), ": ", human_bytes(kept), " for ",
                       ranks, ranks == 1 ? " rank" : " ranks", " with weights, gradients and optimizer states in ",
                       dtype, ", ", human_bytes(gradients), " for the gradients of the reference; ",
                       budget_text(budget), " (nothing was started)",
                       "\n  fix: a smaller model of this kind, for instance --model.num_hidden_layers 2: what a layout "
                       "computes does not depend on the sizes");
}

std::string memory_advice(Config config, const MemoryBudget& budget, at::Device device) {
  resolve_dtypes(config, device);
  const planner::MemoryPlan plan = planner::predict_memory(config, config.precision.param, budget.on_gpu);
  // A limit that we do not know of has refused: propose what needs clearly less.
  const double bytes = std::min(bytes_of_rank(budget), 0.75 * plan.total());
  return text("\n  ", planner::describe(plan), "; ", budget_text(budget), fix_text(config, budget, bytes));
}

}  // namespace trireme
