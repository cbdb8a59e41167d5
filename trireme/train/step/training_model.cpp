#include "trireme/train/step/training_model.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include <ATen/Context.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/config/rules/training_rules.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/kernels/matmul/fp8.hpp"
#include "trireme/kernels/matmul/fused_matmul.hpp"
#include "trireme/model/register_family.hpp"
#include "trireme/model/stage.hpp"
#include "trireme/nn/fp8_history.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/train/setup/component_options.hpp"
#include "trireme/train/setup/dtypes.hpp"
#include "trireme/train/setup/initial_values.hpp"
#include "trireme/train/setup/rank_setup.hpp"

namespace trireme {
namespace {

/// StepWork::shape_key.
std::int64_t shape_key(const Microbatch& microbatch) {
  return microbatch.context.batch << 32 | microbatch.context.length;
}

ParamValues no_values() {
  return [](const Param&, Range, const at::Tensor& out) { out.zero_(); };
}

std::shared_ptr<const Fp8Recipe> fp8_recipe(const PrecisionConfig& precision, at::Device device) {
  Fp8Recipe recipe;
  if (precision.fp8_scaling == "row") recipe.scaling = kernels::Fp8Scaling::row;
  if (precision.fp8_amax == "delayed") recipe.history = std::make_shared<Fp8History>(device);
  return std::make_shared<const Fp8Recipe>(recipe);
}

}  // namespace

TrainingModel::TrainingModel(const Config& config, Mesh& mesh, at::Device device, int microbatches, bool resumes,
                             std::vector<std::string>& warnings, bool forward_only)
    : parallelism_(config.parallelism),
      mesh_(mesh),
      device_(device),
      tunes_products_(device.is_cuda() && config.cuda.tune_matmul && !config.cuda.deterministic),
      router_bias_rate_(config.model.router_bias_update_rate) {
  check_products(config, device);
  const bool graphs =
      !forward_only && uses_graphs(config, device, find_model_family(config.model.model_type) != nullptr);
  if (device.is_cuda()) {
    kernels::allow_fused_matmul(config.cuda.fused_matmul);
    // cuBLAS is deterministic with a workspace of a fixed size; libtorch asks for this variable.
    if (config.cuda.deterministic) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
    if (config.cuda.deterministic) {
      at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
      at::globalContext().setDeterministicFillUninitializedMemory(false);  // no kernel reads what it has not written
    }
  }
  const schedule::Schedule schedule = pipeline_schedule(parallelism_, microbatches);
  const schedule::Program& program = schedule.programs[static_cast<std::size_t>(mesh.coord(Axis::pp))];
  loss_options_ = loss_options(config, device);
  loss_options_.gradients_in_backward = schedule::microbatches_in_flight(program) > 1;
  std::vector<ModelChunk> chunks;
  {
    const InitScope scope(at::kMeta, scalar_type(config.precision.param));
    Parallel parallel(mesh, config.parallelism.sequence_parallel, config::context_split_of(config));
    if (config.precision.matmul == "fp8") parallel.fp8 = fp8_recipe(config.precision, device);
    fp8_history_ = parallel.fp8 ? parallel.fp8->history : nullptr;
    for (DecoderPart& part : decoder_parts(config.model, pipeline_chunks(config.model, parallelism_), mesh)) {
      decoders_.push_back(std::make_shared<Decoder>(config.model, parallel, std::move(part)));
      Decoder& decoder = *decoders_.back();
      decoder.set_recompute(config::recompute_of(config.activation_checkpoint.mode));
      freeze_parameters(params_of(decoder), config);
      chunks.push_back({params_of(decoder),
                        decoder.unit_plan({.layers_per_unit = config::layers_per_unit(config),
                                           .head_weight_in_backward = loss_options_.gradients_in_backward}),
                        decoder.part().chunk});
    }
  }

  std::optional<InitialValues> initial;
  if (!resumes) {
    std::vector<Param> params;
    for (const ModelChunk& chunk : chunks) params.insert(params.end(), chunk.params.begin(), chunk.params.end());
    initial.emplace(config, params, mesh);
  }
  if (initial && !initial->note().empty()) warnings.push_back(initial->note());

  std::vector<UnitPlan> units;
  for (const ModelChunk& chunk : chunks) units.push_back(chunk.units);
  ZeroOptions options = zero_options(config);
  options.device = device;
  options.forward_only = forward_only;
  // Ranks read or draw different amounts of weights, from storage of different speed.
  const TimeLimit limit(mesh.world(), std::max(config.comm.init_timeout_s, config.comm.timeout_s));
  zero_ = std::make_unique<Zero>(std::move(chunks), mesh, options, update_options(config),
                                 initial ? initial->values() : no_values());
  for (std::size_t i = 0; i < decoders_.size(); ++i)
    decoders_[i]->use_units(&unit_trace_.around(zero_->chunk(i), units[i]), units[i]);
  if (router_bias_rate_ > 0)
    for (const auto& decoder : decoders_) std::ranges::move(decoder->routers(), std::back_inserter(biased_routers_));
  executor_ = std::make_unique<Executor>(schedule, *zero_, mesh);
  if (graphs) {
    zero_->chunk(0).hold_back();
    graphs_ = std::make_unique<MicrobatchGraphs>(
        [this](const Microbatch& microbatch, const at::Tensor& loss_gradient) {
          const at::Tensor loss = forward(0, microbatch, {}).loss;
          run_backward(loss, loss_gradient);
          return loss.detach();
        },
        [&mesh] {
          if (Group& tp = mesh.group(Axis::tp); tp.size() > 1) tp.replay().wait();
        },
        device);
  }
  mesh.world_group().barrier().wait();
}

/// The last chunk returns the loss of the microbatch, summed over its tokens.
ChunkOutput TrainingModel::forward(int chunk, const Microbatch& microbatch, const std::vector<Tensors>& inputs) {
  const std::vector<int>& own = executor_->chunks();
  Decoder& decoder = *decoders_[static_cast<std::size_t>(std::ranges::find(own, chunk) - own.begin())];
  const at::Tensor hidden = decoder.hidden(inputs.empty() ? microbatch.ids_T : inputs[0][0], microbatch.context);
  if (!decoder.part().has_head) return std::vector<Tensors>{{hidden}};
  CrossEntropyOptions options = loss_options_;
  if (!microbatch.context.training) options.label_smoothing = options.z_loss = 0;
  return decoder.loss_of_hidden(hidden, microbatch.targets_T, options).loss;
}

StepOutcome TrainingModel::run_step(const StepRun& run) {
  if (fp8_history_) fp8_history_->begin_step();
  std::vector<Microbatch> microbatches = run.microbatches;
  for (std::size_t m = 0; m < microbatches.size(); ++m) {
    ForwardContext& context = microbatches[m].context;
    context.auxiliary_factor = run.auxiliary_factor;
    context.auxiliary_loss = run.auxiliary_loss;
    if (run.probes.output)
      context.probe = [&run, m](const std::string& path, const at::Tensor& x) {
        run.probes.output(static_cast<int>(m), path, x);
      };
  }
  const auto of = [&](int m) -> const Microbatch& { return microbatches[static_cast<std::size_t>(m)]; };
  StepWork work{.step = run.step,
                .forward =
                    [&](int chunk, int m, const std::vector<Tensors>& inputs) {
                      ChunkOutput output = forward(chunk, of(m), inputs);
                      if (run.probes.loss && output.loss.defined()) run.probes.loss(m, output.loss);
                      return output;
                    },
                .loss_gradient = run.loss_gradient,
                .shape_key = [&](int m) { return shape_key(of(m)); },
                .edge_shapes = run.edge_shapes};
  if (graphs_ && run.uses_graphs && !run.probes.output) {
    zero_->finish_gathers();
    work.microbatch = [&](int m, bool first, const at::Tensor& gradient) {
      const MicrobatchGraphs::Done done = graphs_->run(of(m), first, gradient);
      return MicrobatchRun{done.loss, done.replayed};
    };
  }
  return executor_->run(work);
}

void TrainingModel::tune_products() {
  if (tunes_products_) kernels::tune_fused_matmul(device_);
}

void TrainingModel::update_routers(bool applied) {
  update_selection_biases(biased_routers_, mesh_, applied ? router_bias_rate_ : 0);
}

/// What is sent stays in memory until the pipeline has run empty, so that is done now and then.
at::Tensor TrainingModel::evaluate(std::int64_t count, const std::function<Microbatch(std::int64_t)>& batch) {
  const at::NoGradGuard no_grad;
  const std::int64_t at_once = std::min(count, 4 * parallelism_.pp);
  at::Tensor sum = at::zeros({}, at::TensorOptions(at::kDouble).device(device_));
  for (std::int64_t begin = 0; begin < count; begin += at_once) {
    const auto batches = static_cast<int>(std::min(at_once, count - begin));
    std::map<int, Microbatch> known;  // a rank with several chunks needs a batch several times
    const auto get = [&](int m) -> const Microbatch& {
      const auto found = known.find(m);
      return found != known.end() ? found->second : known.emplace(m, batch(begin + m)).first->second;
    };
    sum += evaluator(batches)
               .run({.step = 0,
                     .forward = [&](int chunk, int m,
                                    const std::vector<Tensors>& inputs) { return forward(chunk, get(m), inputs); },
                     .loss_gradient = {},
                     .shape_key = [&](int m) { return shape_key(get(m)); }})
               .loss_sum;
  }
  return sum;
}

Executor& TrainingModel::evaluator(int batches) {
  std::unique_ptr<Executor>& known = evaluators_[batches];
  if (!known)
    known = std::make_unique<Executor>(schedule::forward_only(executor_->schedule(), batches), mesh_, device_);
  return *known;
}

}  // namespace trireme
