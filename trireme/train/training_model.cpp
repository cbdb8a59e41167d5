#include "trireme/train/training_model.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/config/rules/training_rules.hpp"
#include "trireme/model/hugging_face.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/planner/memory.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/train/component_options.hpp"
#include "trireme/train/dtypes.hpp"

namespace trireme {
namespace {

ParamValues no_values() {
  return [](const Param&, Range, const at::Tensor& out) { out.zero_(); };
}

/// `weights` is what the values are read from, if they are, and must live as long.
ParamValues initial_values(const Config& config, const Decoder& decoder, Mesh& mesh,
                           std::unique_ptr<HuggingFaceWeights>& weights) {
  const std::string& init = config.model.init;
  if (init == "random") return random_values(mesh, init_options(config));
  require<ConfigError>(init.starts_with("hf:"), "model.init = \"", init, "\": must be \"random\" or \"hf:FOLDER\"");
  weights = std::make_unique<HuggingFaceWeights>(decoder, init.substr(3));
  return weights->values(mesh);
}

}  // namespace

TrainingModel::TrainingModel(const Config& config, ParallelContext& context, int microbatches, bool resumes,
                             std::vector<std::string>& warnings) {
  Mesh& mesh = context.mesh();
  const schedule::Program program = schedule::one_f_one_b(0, 1, microbatches);
  loss_options_ = {.tile_tokens = planner::loss_tile_tokens(context.device().is_cuda()),
                   .gradients_in_backward = schedule::microbatches_in_flight(program) > 1};
  {
    const InitScope scope(at::kMeta, scalar_type(config.precision.param));
    decoder_ = std::make_shared<Decoder>(config.model, Parallel(mesh, config.parallelism.sequence_parallel));
  }
  decoder_->set_recompute(config::recompute_of(config.activation_checkpoint.mode));

  std::unique_ptr<HuggingFaceWeights> weights;
  const ParamValues values = resumes ? no_values() : initial_values(config, *decoder_, mesh, weights);
  if (weights && !weights->note().empty()) warnings.push_back(weights->note());

  const UnitPlan units = decoder_->unit_plan({.layers_per_unit = config::layers_per_unit(config),
                                              .head_weight_in_backward = loss_options_.gradients_in_backward});
  ZeroOptions options = zero_options(config);
  options.device = context.device();
  // Ranks read or draw different amounts of weights, from storage of different speed.
  const TimeLimit limit(context.world(), std::max(config.comm.init_timeout_s, config.comm.timeout_s));
  zero_ = std::make_unique<Zero>(params_of(*decoder_), units, mesh, options, update_options(config), values);
  unit_trace_ = std::make_unique<UnitTrace>(zero_->chunk(), units);
  decoder_->use_units(unit_trace_.get(), units);
  executor_ = std::make_unique<Executor>(program, *zero_, mesh);
  mesh.world_group().barrier().wait();
}

at::Tensor TrainingModel::loss(const Microbatch& microbatch, const Probe& probe) {
  ForwardContext context = microbatch.context;
  context.probe = probe;
  return decoder_->loss(microbatch.ids_T, microbatch.targets_T, context, loss_options_).loss;
}

}  // namespace trireme
