#include "trireme/train/setup/component_options.hpp"

#include "trireme/base/error.hpp"
#include "trireme/base/name_pattern.hpp"
#include "trireme/config/rules/training_rules.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/config/schema/lr_factor.hpp"
#include "trireme/planner/memory.hpp"
#include "trireme/train/setup/dtypes.hpp"

namespace trireme {

ParallelSizes parallel_sizes(const Config& config) {
  const ParallelismConfig& p = config.parallelism;
  return {.tensor_parallel_size = static_cast<int>(p.tp),
          .data_parallel_size = static_cast<int>(p.dp),
          .pipeline_parallel_size = static_cast<int>(p.pp),
          .context_parallel_size = static_cast<int>(p.cp),
          .expert_parallel_size = static_cast<int>(p.ep),
          .expert_tensor_parallel_size = static_cast<int>(p.expert_tp),
          .order = p.order};
}

ZeroOptions zero_options(const Config& config) {
  const ParallelismConfig& p = config.parallelism;
  return {.stage = static_cast<int>(p.zero),
          .replicate = static_cast<int>(p.replicate),
          .bucket_mb = p.bucket_mb,
          .overlap = p.overlap_comm,
          .reduce_scatter = p.reduce_scatter,
          .contiguous_gradients = p.contiguous_gradients,
          .reshard_after_forward = p.reshard_after_forward,
          .max_live_parameters = p.max_live_parameters,
          .max_reuse_distance = p.max_reuse_distance,
          .persistence_threshold = p.persistence_threshold,
          .accumulate = scalar_type(config.precision.accumulate),
          .reduce = scalar_type(config.precision.reduce)};
}

CrossEntropyOptions loss_options(const Config& config, at::Device device) {
  return {.label_smoothing = config.training.label_smoothing,
          .z_loss = config.training.z_loss_coef,
          .tile_tokens = planner::loss_tile_tokens(device.is_cuda())};
}

void freeze_parameters(const std::vector<Param>& params, const Config& config) {
  const std::vector<NamePattern> frozen = name_patterns(config.optimizer.frozen);
  for (const Param& param : params)
    if (matches_any(frozen, param.name)) at::Tensor(param.value).set_requires_grad(false);
}

namespace {

std::vector<ParameterGroup> parameter_groups(const OptimizerConfig& optimizer) {
  std::vector<ParameterGroup> groups;
  for (const std::string& word : optimizer.lr_factors) {
    config::LrFactor factor = config::parse_lr_factor(word);
    groups.push_back({.names = {std::move(factor.pattern)}, .lr_factor = factor.factor});
  }
  return groups;
}

}  // namespace

UpdateOptions update_options(const Config& config) {
  const OptimizerConfig& o = config.optimizer;
  require<ConfigError>(o.betas.size() == 2, "optimizer.betas has ", o.betas.size(), " numbers: must be 2");
  return {.optimizer = {.kind = parse_optimizer(o.name),
                        .beta1 = o.betas[0],
                        .beta2 = o.betas[1],
                        .eps = o.eps,
                        .weight_decay = o.weight_decay,
                        .momentum = o.momentum,
                        .nesterov = o.nesterov,
                        .no_decay = o.no_decay},
          .groups = parameter_groups(o),
          .master = scalar_type(config.precision.master),
          .states = scalar_type(config.precision.states)};
}

namespace {

InitScheme init_scheme(const ModelConfig& model) {
  switch (config::parse_initializer(model.initializer)) {
    case config::Initializer::normal: return InitScheme::llama;
    case config::Initializer::scaled: return InitScheme::gpt2;
    case config::Initializer::depth_scaled: return InitScheme::depth;
    case config::Initializer::torchtitan: return InitScheme::torchtitan;
    case config::Initializer::automatic: break;
  }
  return config::family_of(model).scaled_residual_init ? InitScheme::gpt2 : InitScheme::llama;
}

}  // namespace

InitOptions init_options(const Config& config) {
  return {.seed = static_cast<std::uint64_t>(config.run.seed),
          .scheme = init_scheme(config.model),
          .range = config.model.initializer_range,
          .layers = config.model.num_hidden_layers};
}

LossScale::Options loss_scale_options(const Config& config) {
  return {.initial = config.loss_scale.initial,
          .growth_interval = config.loss_scale.growth_interval,
          .hysteresis = config.loss_scale.hysteresis};
}

std::vector<std::string> check_options(const Config& config) {
  zero_options(config);
  make_optimizer(update_options(config).optimizer);
  config::layers_per_unit(config);
  LrSchedule{lr_options(config)};
  if (config.precision.param == "float16" || config.model.dtype == "float16") LossScale{loss_scale_options(config)};
  return {};
}

}  // namespace trireme
