#include "trireme/train/verify.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>

#include <ATen/ATen.h>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/comm/group_text.hpp"
#include "trireme/comm/thread_world.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/nn/full_tensor.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/planner/memory.hpp"
#include "trireme/train/batches.hpp"
#include "trireme/train/initial_values.hpp"
#include "trireme/train/step_agreement.hpp"
#include "trireme/train/training_model.hpp"
#include "trireme/zero/collective_state_dict.hpp"

namespace trireme {
namespace {

using TensorsByName = std::map<std::string, at::Tensor>;

Config in_float64(Config config) {
  PrecisionConfig& p = config.precision;
  config.model.dtype = p.param = p.reduce = p.accumulate = p.master = p.states = "float64";
  config.validation.interval = 0;
  return config;
}

/// The same batches on one rank: a microbatch is that of all replicas together.
Config on_one_rank(Config config) {
  config.training.micro_batch_size *= config.parallelism.dp;
  config.parallelism = ParallelismConfig{};
  config.parallelism.dp = config.parallelism.expert_tp = 1;
  config.parallelism.zero = 0;
  config.parallelism.sequence_parallel = false;
  return config;
}

Mesh mesh_for(const Config& config, World& world) {
  return Mesh(config::dense_grid(config.parallelism), world, {}, config::expert_grid(config.model, config.parallelism));
}

double tokens_of_step(const Config& config, const Batches& batches, std::int64_t step) {
  return static_cast<double>(config.training.global_batch_size * batches.data().sampler().seq_len(step));
}

// Note [Sketches]: activations are compared by a few random combinations of the features of each token, not stored
// whole: signs s with E[(s . d)^2] = |d|^2 show a difference d wherever it is. The norm of the token is kept beside.
constexpr std::int64_t kCombinations = 4;

at::Tensor sketch_of(const at::Tensor& x_tD) {
  const at::Tensor x = x_tD.detach().to(at::kDouble);
  const at::Tensor feature = at::arange(1, x.size(1) + 1, x.options()).unsqueeze(1);
  const at::Tensor turn = at::arange(1, kCombinations + 1, x.options()).sqrt() * 12.9898;
  const at::Tensor signs = (feature * feature * turn).cos().sign();
  return at::cat({x.matmul(signs), x.norm(2, 1, /*keepdim=*/true)}, 1);
}

double norm_of_tensor(const at::Tensor& x) { return x.norm().item<double>(); }

/// What one rank computes in a step.
struct ReferenceStep {
  double loss = 0;
  TensorsByName gradients;   // in host memory
  double gradient_norm = 0;  // of all of them
  TensorsByName sketches;    // by module: of the tokens by row id
};

struct Reference {
  std::vector<ReferenceStep> steps;
  std::vector<std::string> parameters, modules;  // in forward order
};

/// Plain autograd: neither Zero nor Executor.
Reference reference_of(const Config& config, at::Device device, int steps) {
  Reference out;
  run_ranks(1, [&](World& world) {
    Mesh mesh = mesh_for(config, world);
    const InitScope scope(device, at::kDouble);
    Decoder decoder(config.model, Parallel(mesh, false, config::context_split_of(config)));
    const std::vector<Param> params = params_of(decoder);
    fill_params(params, InitialValues(config, params, mesh).values());
    for (const Param& param : params)
      if (param.value.requires_grad()) out.parameters.push_back(param.name);
    Batches batches(config, mesh, device);
    const CrossEntropyOptions loss_options{.tile_tokens = planner::loss_tile_tokens(device.is_cuda())};
    for (int step = 1; step <= steps; ++step) {
      ReferenceStep& now = out.steps.emplace_back();
      const double tokens = tokens_of_step(config, batches, step);
      const std::vector<Microbatch> microbatches = batches.take(step);
      std::int64_t valid = 0;
      for (const Microbatch& microbatch : microbatches) valid += microbatch.valid;
      const double count = std::max(1.0, static_cast<double>(valid));
      decoder.zero_grad();
      for (const Microbatch& microbatch : microbatches) {
        ForwardContext context = microbatch.context;
        context.auxiliary_factor = 1 / tokens;
        context.probe = [&](const std::string& path, const at::Tensor& x) {
          const at::Tensor sketch = sketch_of(x);
          at::Tensor& all = now.sketches[path];
          if (!all.defined()) all = at::zeros({static_cast<std::int64_t>(tokens), sketch.size(1)}, sketch.options());
          all.index_copy_(0, context.rows_T(), sketch);
          if (std::ranges::find(out.modules, path) == out.modules.end()) out.modules.push_back(path);
        };
        const at::Tensor loss =
            decoder.loss(microbatch.ids_T, microbatch.targets_T, context, loss_options).loss / count;
        loss.backward();
        now.loss += loss.item<double>();
      }
      double squares = 0;
      for (const Param& param : params) {
        if (!param.value.requires_grad()) continue;
        const at::Tensor gradient =
            param.value.grad().defined() ? param.value.grad().clone() : at::zeros_like(param.value).detach();
        now.gradients[param.name] = gather_full_tensor(gradient, param.spec, mesh).value.cpu();
        squares += std::pow(norm_of_tensor(now.gradients[param.name]), 2);
      }
      now.gradient_norm = std::sqrt(squares);
    }
  });
  return out;
}

/// The largest differences by name.
class Differences {
 public:
  void add(const std::string& name, double max_abs, double relative) {
    TensorDifference& known = by_name_.try_emplace(name, TensorDifference{.name = name}).first->second;
    known.max_abs = larger(known.max_abs, max_abs);
    known.relative = larger(known.relative, relative);
  }

  /// A line for each: "relative max_abs name".
  std::string lines() const {
    std::ostringstream out;
    out << std::hexfloat;
    for (const auto& [name, d] : by_name_) out << d.relative << " " << d.max_abs << " " << name << "\n";
    return out.str();
  }
  void add_lines(const std::string& lines) {
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) {
      char* rest = nullptr;
      const double relative = std::strtod(line.c_str(), &rest), max_abs = std::strtod(rest, &rest);
      add(rest + 1, max_abs, relative);
    }
  }

  /// In the order of `names`; what no rank has told of differs infinitely.
  std::vector<TensorDifference> in_order(const std::vector<std::string>& names, double allowed) const {
    std::vector<TensorDifference> out;
    for (const std::string& name : names) {
      const auto found = by_name_.find(name);
      const double infinite = std::numeric_limits<double>::infinity();
      out.push_back(found != by_name_.end()
                        ? found->second
                        : TensorDifference{.name = name, .max_abs = infinite, .relative = infinite});
      out.back().within = out.back().relative <= allowed;  // not if it is NaN
    }
    return out;
  }

 private:
  /// NaN is larger than any number.
  static double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

  std::map<std::string, TensorDifference> by_name_;
};

/// Collective: those of all ranks, on each.
Differences of_all_ranks(const Differences& own, World& world) {
  std::string joined;
  for (const std::string& lines : gather_texts(world.control(), own.lines())) joined += lines;
  Differences all;
  all.add_lines(broadcast_text(world.control(), joined));
  return all;
}

std::string module_of(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

void judge(VerifyResult& result, const VerifyOptions& options) {
  result.passed = true;
  for (std::size_t i = 0; i < result.losses.size(); ++i)
    result.passed &=
        std::abs(result.losses[i] - result.reference_losses[i]) <= options.loss * std::abs(result.reference_losses[i]);
  const auto differs = [](const TensorDifference& d) { return !d.within; };
  // Backward reaches the last module first.
  if (const auto last = std::ranges::find_if(result.gradients.rbegin(), result.gradients.rend(), differs);
      last != result.gradients.rend())
    result.first_module = module_of(last->name);
  if (const auto first = std::ranges::find_if(result.activations, differs); first != result.activations.end())
    result.first_module = first->name;
  result.passed &= result.first_module.empty();
}

/// One rank of the layout.
class ComparedRank {
 public:
  ComparedRank(const Config& config, Mesh& mesh, at::Device device, const Reference& reference,
               const VerifyOptions& options)
      : config_(config),
        mesh_(mesh),
        device_(device),
        reference_(reference),
        options_(options),
        parallel_(mesh, config.parallelism.sequence_parallel, config::context_split_of(config)),
        batches_(config, mesh, device),
        model_(config, mesh, device, static_cast<int>(batches_.num_microbatches()), /*resumes=*/false, warnings_) {}

  VerifyResult run() {
    VerifyResult result;
    for (const ReferenceStep& step : reference_.steps) {
      result.reference_losses.push_back(step.loss);
      result.losses.push_back(run_step(static_cast<std::int64_t>(result.losses.size()) + 1, step));
    }
    model_.zero().finish_gathers();
    result.gradients = of_all_ranks(gradients_, mesh_.world()).in_order(reference_.parameters, options_.tensor);
    result.activations = of_all_ranks(activations_, mesh_.world()).in_order(reference_.modules, options_.tensor);
    judge(result, options_);
    return result;
  }

 private:
  double run_step(std::int64_t step, const ReferenceStep& reference) {
    mesh_.tag({step, "verify"});
    const std::vector<Microbatch> microbatches = batches_.take(step);
    TokenCount tokens(microbatches, /*failed=*/false, mesh_, device_);
    const StepOutcome outcome = model_.executor().run(
        {.step = step,
         .forward =
             [&](int chunk, int m, const std::vector<Tensors>& inputs) {
               const Microbatch& microbatch = microbatches[static_cast<std::size_t>(m)];
               const at::Tensor rows_t = parallel_.own_tokens(microbatch.context.rows_T());
               return model_.forward(
                   chunk, microbatch, inputs,
                   {.probe = [&](const std::string& path, const at::Tensor& x) { compare(reference, path, rows_t, x); },
                    .auxiliary_factor = 1 / tokens_of_step(config_, batches_, step)});
             },
         .loss_gradient = [&] { return 1 / tokens.total().clamp_min(1); },
         .shape_key = [&](int m) { return shape_key(microbatches[static_cast<std::size_t>(m)]); }});
    Zero& zero = model_.zero();
    zero.finish_gradients();
    mesh_.end_step();
    zero.update({.lr = 0}).settle();  // the weights stay as they are
    const StepAgreement agreed = agree(outcome.loss_sum, {}, mesh_);
    for_each_full_shard_of_stage(zero, gradient_shard,
                                 [&](const Param& param, const at::Tensor&, const at::Tensor& full) {
                                   compare_gradient(reference, param.name, full.cpu());
                                 });
    return agreed.loss_sum / std::max(1.0, tokens.total().item<double>());
  }

  void compare(const ReferenceStep& reference, const std::string& path, const at::Tensor& rows_t, const at::Tensor& x) {
    const auto wanted = reference.sketches.find(path);
    require(wanted != reference.sketches.end(), "verify: the reference has no module ", path);
    const at::Tensor rows = wanted->second.index_select(0, rows_t);
    const double difference =
        norm_of_tensor((sketch_of(x) - rows).narrow(1, 0, kCombinations)) / std::sqrt(double{kCombinations});
    const double norm = norm_of_tensor(rows.select(1, kCombinations));
    activations_.add(path, 0, difference == 0 ? 0 : difference / norm);
  }

  void compare_gradient(const ReferenceStep& reference, const std::string& name, const at::Tensor& found) {
    const auto wanted = reference.gradients.find(name);
    require(wanted != reference.gradients.end() && wanted->second.sizes() == found.sizes(), "verify: the gradient of ",
            name, " has the sizes ", found.sizes(), ", the reference has ",
            wanted == reference.gradients.end() ? "none" : text(wanted->second.sizes()));
    if (found.numel() == 0) return;
    const at::Tensor difference = found - wanted->second;
    const double norm = norm_of_tensor(difference),
                 scale = std::max(norm_of_tensor(wanted->second), options_.least * reference.gradient_norm);
    gradients_.add(name, difference.abs().max().item<double>(), norm == 0 ? 0 : norm / scale);
  }

  const Config& config_;
  Mesh& mesh_;
  const at::Device device_;
  const Reference& reference_;
  const VerifyOptions& options_;
  const Parallel parallel_;
  Batches batches_;
  std::vector<std::string> warnings_;  // about weights from a folder: not of interest here
  TrainingModel model_;
  Differences gradients_{}, activations_{};
};

void check_request(const Config& config, const VerifyOptions& options) {
  require<ConfigError>(options.steps >= 1, "verify: ", options.steps, " steps: must be at least 1");
  require<ConfigError>(config.parallelism.dp >= 1, "verify: parallelism.dp = ", config.parallelism.dp,
                       ": must be a number of replicas\n  fix: a config from read_training_config()");
}

}  // namespace

VerifyResult verify(const Config& config, const VerifyOptions& options) {
  check_request(config, options);
  const Config exact = in_float64(config);
  const Reference reference = reference_of(on_one_rank(exact), at::kCPU, options.steps);
  VerifyResult result;
  run_ranks(config::dense_grid(exact.parallelism).size(), [&](World& world) {
    Mesh mesh = mesh_for(exact, world);
    VerifyResult own = ComparedRank(exact, mesh, at::kCPU, reference, options).run();
    if (world.rank() == 0) result = std::move(own);
  });
  return result;
}

VerifyResult verify(const Config& config, const ParallelContext& context, const VerifyOptions& options) {
  check_request(config, options);
  const Config exact = in_float64(config);
  const Grid grid = config::dense_grid(exact.parallelism);
  require<ConfigError>(grid.axes() == context.mesh().grid().axes(), "verify: the config has the layout ", grid.str(),
                       ", the ranks ", context.mesh().grid().str());
  const Reference reference = reference_of(on_one_rank(exact), context.device(), options.steps);
  // Ranks need different times for the reference.
  const TimeLimit limit(context.world(), std::max(config.comm.init_timeout_s, config.comm.timeout_s));
  return ComparedRank(exact, context.mesh(), context.device(), reference, options).run();
}

std::string VerifyResult::str() const {
  std::ostringstream out;
  for (std::size_t i = 0; i < losses.size(); ++i)
    out << "step " << i + 1 << ": loss " << human_number(losses[i]) << ", one rank "
        << human_number(reference_losses[i]) << ", difference " << human_number(losses[i] - reference_losses[i])
        << "\n";
  const auto tell = [&](const char* what, const std::vector<TensorDifference>& all) {
    if (all.empty()) return;
    const auto beyond = std::ranges::count_if(all, [](const TensorDifference& d) { return !d.within; });
    const TensorDifference& most = *std::ranges::max_element(all, {}, &TensorDifference::relative);
    out << all.size() << " " << what << ": largest relative difference " << human_number(most.relative) << " ("
        << most.name << "), " << beyond << " beyond the tolerance\n";
  };
  tell("activations", activations);
  tell("gradients", gradients);
  out << (passed ? "the layout agrees with one rank" : "the layout differs from one rank");
  if (!first_module.empty()) out << ", beginning with " << first_module;
  return out.str();
}

}  // namespace trireme
