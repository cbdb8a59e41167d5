#include "trireme/verify/verify.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>

#include <ATen/ATen.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/parallel/zero/collective_state_dict.hpp"
#include "trireme/train/setup/memory_check.hpp"
#include "trireme/train/step/batches.hpp"
#include "trireme/train/step/step_agreement.hpp"
#include "trireme/train/step/training_model.hpp"
#include "trireme/verify/verify_differences.hpp"
#include "trireme/verify/verify_reference.hpp"

namespace trireme {
namespace {

Config in_dtype(Config config, const std::string& dtype) {
  PrecisionConfig& p = config.precision;
  config.model.dtype = p.param = dtype;
  p.reduce = p.accumulate = p.master = p.states = dtype == "float64" ? dtype : "float32";
  config.validation.interval = 0;
  return config;
}

VerifyTolerances tolerances_of(const VerifyOptions& options) {
  return options.tolerances ? *options.tolerances : verify_tolerances(options.dtype);
}

double norm_of_tensor(const at::Tensor& x) { return x.norm().item<double>(); }

std::string module_of(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

void judge(VerifyResult& result) {
  result.passed = true;
  for (std::size_t i = 0; i < result.losses.size(); ++i)
    result.passed &= std::abs(result.losses[i] - result.reference_losses[i]) <=
                     result.tolerances.loss * std::abs(result.reference_losses[i]);
  const auto differs = [](const TensorDifference& d) { return !d.within; };
  // Backward reaches the last module first.
  if (const auto last = std::ranges::find_if(result.gradients.rbegin(), result.gradients.rend(), differs);
      last != result.gradients.rend())
    result.first_module = module_of(last->name);
  if (const auto first = std::ranges::find_if(result.activations, differs); first != result.activations.end())
    result.first_module = first->name;
  result.passed &= result.first_module.empty();
}

/// One rank of a layout. Weights stay as they are.
class LayoutRank {
 public:
  using OnActivation = std::function<void(const std::string& module, const at::Tensor& rows_t, const at::Tensor& x_tD)>;
  using OnGradient = std::function<void(const std::string& parameter, const at::Tensor& full)>;

  LayoutRank(const Config& config, Mesh& mesh, at::Device device)
      : config_(config),
        mesh_(mesh),
        device_(device),
        parallel_(mesh, config.parallelism.sequence_parallel, config::context_split_of(config)),
        batches_(config, mesh, device),
        model_(config, mesh, device, static_cast<int>(batches_.num_microbatches()), /*resumes=*/false, warnings_) {}
  /// After the last step.
  void finish() { model_.zero().finish_gathers(); }

  std::int64_t tokens_of(std::int64_t step) const {
    return tokens_of_step(config_, batches_.data().sampler().seq_len(step));
  }

  /// Returns the loss.
  double run_step(std::int64_t step, const OnActivation& activation, const OnGradient& gradient) {
    mesh_.tag({step, "verify"});
    const std::vector<Microbatch> microbatches = batches_.take(step);
    TokenCount tokens(microbatches, /*failed=*/false, mesh_, device_);
    const auto look = [&](int m, const std::string& path, const at::Tensor& x) {
      activation(path, parallel_.own_tokens(microbatches[static_cast<std::size_t>(m)].context.rows_T()), x);
    };
    const StepOutcome outcome = model_.run_step({.step = step,
                                                 .microbatches = microbatches,
                                                 .loss_gradient = [&] { return 1 / tokens.total().clamp_min(1); },
                                                 .auxiliary_factor = 1 / static_cast<double>(tokens_of(step)),
                                                 .probes = {.output = look}});
    Zero& zero = model_.zero();
    zero.finish_gradients();
    mesh_.end_step();
    zero.update({.lr = 0}).settle();  // the weights stay as they are
    const StepAgreement agreed = agree(outcome.loss_sum, {}, mesh_);
    for_each_full_shard_of_stage(zero, gradient_shard,
                                 [&](const Param& param, const at::Tensor&, const at::Tensor& full) {
                                   gradient(param.name, full.cpu().to(at::kDouble));
                                 });
    return agreed.loss_sum / std::max(1.0, tokens.total().item<double>());
  }

 private:
  const Config& config_;
  Mesh& mesh_;
  const at::Device device_;
  const Parallel parallel_;
  Batches batches_;
  std::vector<std::string> warnings_;  // about weights from a folder: not of interest here
  TrainingModel model_;
};

constexpr double kNoises = 64;  // another order of sums moves a gradient further than the last digits of the weights

/// Whether all that differs is gradients that are smaller than what counts: Note [Gradients that are noise].
bool may_be_noise(const VerifyResult& result, const Reference& reference) {
  if (result.passed) return false;
  for (std::size_t i = 0; i < result.losses.size(); ++i)
    if (!(std::abs(result.losses[i] - result.reference_losses[i]) <=
          result.tolerances.loss * std::abs(result.reference_losses[i])))
      return false;
  if (!std::ranges::all_of(result.activations, &TensorDifference::within)) return false;
  return std::ranges::all_of(result.gradients, [&](const TensorDifference& d) {
    return d.within || std::ranges::all_of(reference.steps, [&](const ReferenceStep& step) {
             return norm_of_tensor(step.gradients.at(d.name)) <= result.tolerances.least * step.gradient_norm;
           });
  });
}

/// Collective over the ranks of the layout; the same result on each.
VerifyResult compare(const Config& config, Mesh& mesh, at::Device device, const Reference& reference,
                     const VerifyTolerances& tolerances) {
  VerifyResult result;
  result.reference = reference.what;
  result.tolerances = tolerances;
  Differences gradients, activations;
  {
    LayoutRank rank(config, mesh, device);
    for (const ReferenceStep& wanted : reference.steps) {
      const auto step = static_cast<std::int64_t>(result.losses.size()) + 1;
      result.reference_losses.push_back(wanted.loss);
      result.losses.push_back(rank.run_step(
          step,
          [&](const std::string& module, const at::Tensor& rows_t, const at::Tensor& x_tD) {
            const auto found = wanted.sketches.find(module);
            require(found != wanted.sketches.end(), "verify: the reference has no module ", module);
            const at::Tensor rows = found->second.index_select(0, rows_t);
            const double difference = norm_of_tensor((sketch_of(x_tD) - rows).narrow(1, 0, kSketchColumns)) /
                                      std::sqrt(double{kSketchColumns});
            const double norm = norm_of_tensor(rows.select(1, kSketchColumns));
            activations.add(module, 0, difference == 0 ? 0 : difference / norm);
          },
          [&](const std::string& name, const at::Tensor& full) {
            const auto found = wanted.gradients.find(name);
            require(found != wanted.gradients.end() && found->second.sizes() == full.sizes(),
                    "verify: the gradient of ", name, " has the sizes ", full.sizes(), ", the reference has ",
                    found == wanted.gradients.end() ? "none" : text(found->second.sizes()));
            if (full.numel() == 0) return;
            const at::Tensor difference = full - found->second;
            const auto noise = wanted.noise.find(name);
            const double norm = norm_of_tensor(difference),
                         noise_scale = noise == wanted.noise.end() ? 0 : kNoises * noise->second / tolerances.tensor,
                         scale = std::max(
                             {norm_of_tensor(found->second), tolerances.least * wanted.gradient_norm, noise_scale});
            gradients.add(name, difference.abs().max().item<double>(), norm == 0 ? 0 : norm / scale);
          }));
    }
    rank.finish();
  }
  result.gradients = gradients.of_all_ranks(mesh.world()).in_order(reference.parameters, tolerances.tensor);
  result.activations = activations.of_all_ranks(mesh.world()).in_order(reference.modules, tolerances.tensor);
  judge(result);
  return result;
}

/// What a layout computes, with its ranks as threads. A token or gradient that several ranks have is that of any.
Reference reference_of_layout(const Config& config, int steps) {
  const Grid grid = config::dense_grid(config.parallelism);
  Reference out = names_of_reference(config, grid.str());
  out.steps.resize(static_cast<std::size_t>(steps));
  std::mutex mutex;
  run_ranks(grid.size(), [&](World& world) {
    Mesh mesh = mesh_for(config, world);
    LayoutRank rank(config, mesh, at::kCPU);
    for (int step = 1; step <= steps; ++step) {
      ReferenceStep& now = out.steps[static_cast<std::size_t>(step - 1)];
      const double loss = rank.run_step(
          step,
          [&](const std::string& module, const at::Tensor& rows_t, const at::Tensor& x_tD) {
            const std::lock_guard lock(mutex);
            now.add_sketch(module, rows_t, x_tD, rank.tokens_of(step));
          },
          [&](const std::string& name, const at::Tensor& full) {
            const std::lock_guard lock(mutex);
            now.gradients.try_emplace(name, full);
          });
      if (world.rank() == 0) now.loss = loss;
    }
    rank.finish();
  });
  for (ReferenceStep& step : out.steps) step.set_gradient_norm();
  return out;
}

VerifyResult compare_as_threads(const Config& config, Reference reference, const VerifyOptions& options) {
  VerifyResult result;
  const auto run = [&] {
    run_ranks(config::dense_grid(config.parallelism).size(), [&](World& world) {
      Mesh mesh = mesh_for(config, world);
      VerifyResult own = compare(config, mesh, at::kCPU, reference, tolerances_of(options));
      if (world.rank() == 0) result = std::move(own);
    });
  };
  run();
  if (!may_be_noise(result, reference)) return result;
  measure_noise(reference, on_one_rank(config), at::kCPU);
  run();
  return result;
}

void check_memory_of_threads(const Config& compared, const Config& reference) {
  check_memory_to_verify(compared, reference, config::dense_grid(compared.parallelism).size(),
                         memory_budget(at::kCPU, 1));
}

void check_request(const Config& config, const VerifyOptions& options) {
  require<ConfigError>(options.steps >= 1, "verify: ", options.steps, " steps: must be at least 1");
  require<ConfigError>(config.parallelism.dp >= 1, "verify: parallelism.dp = ", config.parallelism.dp,
                       ": must be a number of replicas\n  fix: a config from read_training_config()");
  verify_tolerances(options.dtype);
}

}  // namespace

// In 16 and 32 bits the sums of a layout are rounded in another order than those of one rank: as measured on the
// examples, times ten.
VerifyTolerances verify_tolerances(const std::string& dtype) {
  if (dtype == "float64") return {};
  if (dtype == "float32") return {.loss = 1e-5, .tensor = 1e-4, .least = 1e-3};
  if (dtype == "bfloat16") return {.loss = 1e-2, .tensor = 1e-1, .least = 1e-2};
  if (dtype == "float16") return {.loss = 2e-3, .tensor = 2e-2, .least = 1e-2};
  throw ConfigError(text("verify: dtype ", dtype, ": must be float64, float32, bfloat16 or float16"));
}

VerifyResult verify(const Config& config, const VerifyOptions& options) {
  check_request(config, options);
  const Config compared = in_dtype(config, options.dtype), alone = on_one_rank(compared);
  check_memory_of_threads(compared, alone);
  return compare_as_threads(compared, reference_of_one_rank(alone, at::kCPU, options.steps), options);
}

VerifyResult verify_against(const Config& config, const Config& reference, const VerifyOptions& options) {
  check_request(config, options);
  check_request(reference, options);
  require<ConfigError>(config.training.global_batch_size == reference.training.global_batch_size,
                       "verify: global batches of ", config.training.global_batch_size, " and of ",
                       reference.training.global_batch_size, " samples cannot be compared");
  const Config compared = in_dtype(config, options.dtype), other = in_dtype(reference, options.dtype);
  check_memory_of_threads(compared, other);
  check_memory_of_threads(other, compared);
  return compare_as_threads(compared, reference_of_layout(other, options.steps), options);
}

VerifyResult verify(const Config& config, const ParallelContext& context, const VerifyOptions& options) {
  check_request(config, options);
  const Config compared = in_dtype(config, options.dtype);
  const Grid grid = config::dense_grid(compared.parallelism);
  require<ConfigError>(grid.axes() == context.mesh().grid().axes(), "verify: the config has the layout ", grid.str(),
                       ", the ranks ", context.mesh().grid().str());
  const Config alone = on_one_rank(compared);
  const int local = context.environment().local_world_size;
  check_memory_to_verify(compared, alone, context.device().is_cuda() ? 1 : local,
                         memory_budget(context.device(), local));
  Reference reference = reference_of_one_rank(alone, context.device(), options.steps);
  // Ranks need different times for the reference.
  const TimeLimit limit(context.world(), std::max(config.comm.init_timeout_s, config.comm.timeout_s));
  const auto run = [&] {
    return compare(compared, context.mesh(), context.device(), reference, tolerances_of(options));
  };
  const VerifyResult result = run();
  if (!may_be_noise(result, reference)) return result;
  measure_noise(reference, alone, context.device());
  return run();
}

}  // namespace trireme
