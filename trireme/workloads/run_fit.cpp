#include "trireme/workloads/run_fit.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/ops/cross_entropy_loss.h>
#include <torch/optim/adam.h>

#include "trireme/base/error.hpp"
#include "trireme/module/fit.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/workloads/workload.hpp"

namespace trireme::workloads {
namespace {

constexpr std::uint64_t kSeed = 1;

/// Units of at least this many parameters: not the norms.
constexpr std::int64_t kUnitElements = 1000;

std::optional<Parallelism> parallelism_of(const std::string& technique) {
  if (technique == "none") return std::nullopt;
  if (technique == "pipeline") return Parallelism{.p_type = ParallelismType::PIPELINE};
  const Sharding sharding = technique == "fsdp_no_shard"        ? Sharding::no_shard
                            : technique == "fsdp_shard_grad_op" ? Sharding::shard_grad_op
                                                                : Sharding::full_shard;
  return Parallelism{.p_type = ParallelismType::FSDP,
                     .config_fsdp = {.sharding = sharding, .wrap_policy = wrap_by_size(kUnitElements)}};
}

double learning_rate(const std::string& model) { return model.ends_with("big") ? 3e-4 : 1e-3; }

}  // namespace

const std::vector<std::string>& technique_names() {
  static const std::vector<std::string> names{"none", "fsdp_no_shard", "fsdp_shard_grad_op", "fsdp_full_shard",
                                              "pipeline"};
  return names;
}

FitFigures run_fit(const FitRun& run, const Environment& environment, const Variables& variables) {
  require<ConfigError>(std::ranges::find(technique_names(), run.technique) != technique_names().end(),
                       "unknown technique ", run.technique);
  ContextOptions options;
  if (!run.gpu) options.backend = "gloo";
  const int ranks = environment.world_size;
  const ParallelContext context(run.technique == "pipeline" ? ParallelSizes{.pipeline_parallel_size = ranks}
                                                            : ParallelSizes{.data_parallel_size = ranks},
                                environment, variables, options);
  std::vector<at::Device> devices;
  for (int r = 0; r < ranks; ++r)
    devices.push_back(run.gpu ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(r)) : at::Device(at::kCPU));
  FitOptions fit_options{.parallel = parallelism_of(run.technique),
                         .device = devices[0],
                         .epochs = run.epochs,
                         .batch_size = run.batch_size,
                         .seed = kSeed};
  if (fit_options.parallel) {
    fit_options.parallel->devices = devices;
    fit_options.mesh = &context.mesh();
  }
  const Workload work = make_workload(run.model, run.samples, kSeed);
  const FitResult result = fit(
      work.model, tensor_dataset(work.train_x, work.train_y), tensor_dataset(work.validation_x, work.validation_y),
      [](const at::Tensor& logits, const at::Tensor& y) { return at::cross_entropy_loss(logits, y); },
      [&run](std::vector<at::Tensor> parameters) {
        return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                                    torch::optim::AdamOptions(learning_rate(run.model)));
      },
      fit_options);
  return {result.seconds, result.validation_loss, result.validation_accuracy};
}

}  // namespace trireme::workloads
