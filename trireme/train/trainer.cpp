#include "trireme/train/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/file_output.hpp"
#include "trireme/base/human.hpp"
#include "trireme/comm/wait_clock.hpp"
#include "trireme/config/rules/training_rules.hpp"
#include "trireme/config/schema/counts.hpp"
#include "trireme/model/hugging_face.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/planner/memory.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/train/component_options.hpp"
#include "trireme/train/dtypes.hpp"
#include "trireme/train/run_header.hpp"
#include "trireme/train/save_weights.hpp"
#include "trireme/train/step_trace.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

Config resolved(Config config, at::Device device) {
  resolve_dtypes(config, device);
  return config;
}

}  // namespace

Trainer::Trainer(Config config, ParallelContext& context, TrainIo io)
    : config_(resolved(std::move(config), context.device())),
      context_(context),
      mesh_(context.mesh()),
      io_(std::move(io)),
      memory_(context.device()),
      lr_(lr_options(config_)) {
  if (config_.precision.param == "float16") scale_.emplace(loss_scale_options(config_));
  batches_ = std::make_unique<Batches>(config_, mesh_, context.device());
  build();
  if (context.rank() == 0) {
    output_ = std::make_unique<RunOutput>(config_, io_.folder, io_.out, io_.terminal);
    replace_file(io_.folder / "config.toml", io_.config_text);
    print_header();
  }
}

Trainer::~Trainer() = default;

void Trainer::build() {
  const TensorParallel tp(mesh_.group(Axis::tp), config_.parallelism.sequence_parallel);
  {
    const InitScope scope = init_on_device_and_dtype(context_.device(), scalar_type(config_.precision.param));
    decoder_ = std::make_shared<Decoder>(config_.model, tp);
  }
  decoder_->set_recompute(config::recompute_of(config_.activation_checkpoint.mode));

  std::unique_ptr<HuggingFaceWeights> weights;
  if (config_.model.init.starts_with("hf:"))
    weights = std::make_unique<HuggingFaceWeights>(*decoder_, config_.model.init.substr(3));
  else
    require<ConfigError>(config_.model.init == "random", "model.init = \"", config_.model.init,
                         "\": must be \"random\" or \"hf:FOLDER\"");
  if (weights && !weights->note().empty()) io_.warnings.push_back(weights->note());
  const auto fill = [&](const std::vector<Param>& params) {
    if (weights)
      weights->read(params, mesh_.grid(), mesh_.rank());
    else
      init_params(params, mesh_.grid(), mesh_.rank(), init_options(config_));
  };
  const std::int64_t layers = config::layers_per_unit(config_);
  zero_ = std::make_unique<Zero>(params_of(*decoder_), decoder_->use_units(nullptr, layers), mesh_,
                                 zero_options(config_), update_options(config_), fill);
  decoder_->use_units(&zero_->params(), layers);
  executor_ =
      std::make_unique<Executor>(schedule::one_f_one_b(0, 1, static_cast<int>(batches_->num_microbatches())), *zero_);
}

void Trainer::print_header() {
  const planner::MemoryPlan plan =
      planner::predict_memory(config_, config_.precision.param, context_.device().is_cuda());
  predicted_bytes_ = plan.total();
  const Environment& env = context_.environment();
  const bool gpu = context_.device().is_cuda();
  const std::string backend = config_.comm.backend == "auto" ? gpu ? "nccl" : "gloo" : config_.comm.backend;
  RunHeader facts;
  facts.program = text(io_.program, " · libtorch ", libtorch_facts().built_with, " · ", env.world_size,
                       env.world_size == 1 ? " rank" : " ranks", " (", env.launcher, "; ", backend, ", ",
                       gpu ? "cuda" : "cpu", ")");
  facts.layout = text(mesh_.grid().str(), " zero=", config_.parallelism.zero);
  facts.data = batches_->data().describe();
  facts.memory = planner::describe(plan);
  facts.output = text(io_.folder.string(), " · metrics.jsonl", config_.metrics.tensorboard ? " · tb/" : "",
                      " · checkpoints/ · config.toml");
  output_->console().header(run_header_lines(config_, facts));
  if (const std::string lack = what_transformers_lacks(config_.model, config_.precision.param); !lack.empty())
    io_.warnings.push_back("the weights will be saved without a config.json for transformers: " + lack);
  for (const std::string& warning : io_.warnings) output_->console().warning(warning);
}

ExitCode Trainer::run() {
  const std::int64_t steps = config_.training.steps, every = config_.validation.interval;
  std::int64_t done = 0;
  bool stop = false;
  const Clock::time_point begin = Clock::now();
  for (std::int64_t step = 1; step <= steps && !stop; ++step) {
    const StepResult result = run_step(step);
    // A smaller loss scale helps where only the scaled gradients are too large.
    const bool scale_helps = scale_ && result.scale > 1 && std::isfinite(result.loss);
    if (!result.finite && !scale_helps && config_.checks.non_finite == "stop") stop_non_finite(step, result);
    done = step;
    stop = result.stop;
    std::optional<double> validation_loss;
    if (every > 0 && (step % every == 0 || step == steps || stop)) {
      const Clock::time_point validation_begin = Clock::now();
      validation_loss = validate();
      total_.validation += seconds_since(validation_begin);
    }
    record(step, result, validation_loss);
  }
  total_.step = seconds_since(begin);
  finish(done, stop && done < steps);
  return stop && done < steps ? ExitCode::interrupted : ExitCode::done;
}

Trainer::StepResult Trainer::run_step(std::int64_t step) {
  StepResult result;
  Timing& t = result.timing;
  const Clock::time_point begin = Clock::now();
  const double waited = seconds_waited();
  const std::vector<Microbatch> microbatches = batches_->take(step);
  t.data = seconds_since(begin);

  // The count of all ranks' tokens travels under the first forward.
  std::int64_t valid = 0;
  for (const Microbatch& microbatch : microbatches) valid += microbatch.valid;
  Group& same_model = mesh_.group({Axis::dp, Axis::cp});
  std::optional<Pending> count;
  count.emplace(same_model.all_reduce_(at::tensor({valid}, at::TensorOptions(at::kLong).device(context_.device()))));
  const double scale = scale_ ? scale_->scale() : 1.0;
  at::Tensor tokens;
  const StepOutcome outcome =
      executor_->run({.step = step,
                      .forward = [&](int m) { return loss_of(microbatches[static_cast<std::size_t>(m)], {}); },
                      .seed =
                          [&] {
                            tokens = std::move(*count).wait()[0].to(at::kDouble);
                            return seed_ = scale / tokens.clamp_min(1);
                          }});
  t.forward = outcome.seconds(schedule::ActionKind::F);
  t.backward = outcome.seconds(schedule::ActionKind::B);

  const Clock::time_point update_begin = Clock::now();
  mesh_.tag({step, "update"});
  zero_->sum_gradients();
  const bool is_traced = std::ranges::find(config_.profiler.steps, step) != config_.profiler.steps.end();
  TracedStep traced{.step = step, .update_ns = steady_ns()};
  if (is_traced) traced.calls = context_.world().recorder().step_calls();  // the update forgets them
  const at::Tensor norm = zero_->update({.lr = lr_(step), .max_norm = config_.training.max_norm, .loss_scale = scale});
  // Losses are alike on the ranks of tp, so one of them counts; whoever wants to stop is heard by all.
  const bool counts = mesh_.coord(Axis::tp) == 0;
  at::Tensor agreed = at::zeros({2}, outcome.loss_sum.options());
  if (counts) agreed[0] = outcome.loss_sum;
  if (io_.stop_asked()) agreed[1] = 1;
  agreed = mesh_.world_group().all_reduce_(agreed).wait().cpu();
  result.norm = norm.item<double>();
  result.loss = agreed[0].item<double>() / std::max(1.0, tokens.item<double>());
  result.stop = agreed[1].item<double>() > 0;
  result.finite = std::isfinite(result.norm);
  result.scale = scale;
  zero_->settle(result.finite);
  if (scale_) scale_->update(!result.finite);
  t.update = seconds_since(update_begin);
  t.step = seconds_since(begin);
  if (is_traced) {
    traced.spans = outcome.spans;
    traced.end_ns = steady_ns();
    write_step_trace(io_.folder / config_.profiler.dir, traced, context_.world(),
                     context_.device().is_cuda() ? "nccl" : "gloo");
  }
  t.waited = seconds_waited() - waited;
  peak_bytes_ = std::max(peak_bytes_, memory_.take_peak());
  return result;
}

CrossEntropyOptions Trainer::loss_options() const {
  return {.tile_tokens = planner::loss_tile_tokens(context_.device().is_cuda())};
}

at::Tensor Trainer::loss_of(const Microbatch& microbatch, const Probe& probe) {
  ForwardContext context = microbatch.context;
  context.probe = probe;
  return decoder_->loss(microbatch.ids_T, microbatch.targets_T, context, loss_options()).loss;
}

void Trainer::record(std::int64_t step, const StepResult& result, std::optional<double> validation_loss) {
  const Timing& t = result.timing;
  total_.data += t.data;
  total_.forward += t.forward;
  total_.backward += t.backward;
  total_.update += t.update;
  total_.waited += t.waited;
  const std::int64_t seq_len = batches_->data().sampler().seq_len(step);
  const std::int64_t tokens = config_.training.global_batch_size * seq_len;
  tokens_ += tokens;
  if (!output_) return;
  const double ranks = context_.world_size(), rate = static_cast<double>(tokens) / t.step;
  report::StepRecord record{.step = step,
                            .steps = result.stop ? step : config_.training.steps,  // the last is always shown
                            .loss = result.loss,
                            .grad_norm = result.norm,
                            .lr = lr_(step),
                            .tokens = tokens_,
                            .tokens_per_sec = rate,
                            .tokens_per_sec_per_rank = rate / ranks,
                            .step_time_s = t.step,
                            .data_time_frac = t.data / t.step,
                            .mem_peak_gib = static_cast<double>(peak_bytes_) / 0x1p30,
                            .skipped = !result.finite,
                            .val_loss = validation_loss};
  // On a GPU a wait only orders streams, and costs the host nothing.
  if (context_.device().is_cpu()) record.comm_exposed_frac = std::min(1.0, t.waited / t.step);
  record.tflops_per_rank =
      config::model_flops_per_token(config_.model, seq_len, config::CountedScores::causal) * rate / ranks / 1e12;
  if (scale_) record.loss_scale = result.scale;
  if (!result.finite) ++skipped_since_shown_;
  if (step == 1 || step % config_.metrics.interval == 0 || step == record.steps || validation_loss) {
    std::string note = step == 1 ? "first step" : "";
    if (skipped_since_shown_ > 0)
      note += text(note.empty() ? "" : "; ", skipped_since_shown_, skipped_since_shown_ == 1 ? " update" : " updates",
                   " skipped: gradients that are not finite");
    skipped_since_shown_ = 0;
    if (!note.empty()) output_->console().note(note);
  }
  output_->step(record);
}

double Trainer::validate() {
  const at::NoGradGuard no_grad;
  at::Tensor sums = at::zeros({2}, at::TensorOptions(at::kDouble).device(context_.device()));
  for (std::int64_t b = 0; b < batches_->num_validation_batches(); ++b) {
    const Microbatch batch = batches_->validation_batch(b);
    const LossSum sum = decoder_->loss(batch.ids_T, batch.targets_T, batch.context, loss_options());
    sums[0] += sum.loss;
    sums[1] += batch.valid;
  }
  sums = mesh_.group({Axis::dp, Axis::cp}).all_reduce_(sums).wait().cpu();
  return sums[0].item<double>() / std::max(1.0, sums[1].item<double>());
}

void Trainer::finish(std::int64_t steps, bool interrupted) {
  zero_->params().finish_gathers();
  const std::filesystem::path saved = save(steps);
  if (!output_) return;
  report::RunSummary summary{.seconds = total_.step, .interrupted = interrupted};
  summary.memory_predicted_gib = predicted_bytes_ / 0x1p30;
  summary.memory_measured_gib = static_cast<double>(peak_bytes_) / 0x1p30;
  const double sum = total_.step > 0 ? total_.step : 1;
  summary.shares = {{"forward", total_.forward / sum},
                    {"backward", total_.backward / sum},
                    {"update", total_.update / sum},
                    {"data", total_.data / sum}};
  if (total_.validation > 0) summary.shares.emplace_back("validation", total_.validation / sum);
  if (context_.device().is_cpu())
    summary.shares.emplace_back("of all that waiting for other ranks", total_.waited / sum);
  if (!saved.empty()) summary.saved = saved;
  output_->finish(summary);
}

std::filesystem::path Trainer::save(std::int64_t step) {
  const std::filesystem::path folder = io_.folder / "checkpoints" / text("step-", step);
  if (context_.rank() == 0) make_folder(folder.parent_path());
  save_weights(*zero_,
               {.model = config_.model,
                .dtype = config_.precision.param,
                .tokenizer = batches_->data().tokenizer(),
                .tokenizer_path = config_.tokenizer.path},
               folder);
  return folder;
}

[[noreturn]] void Trainer::stop_non_finite(std::int64_t step, const StepResult& result) {
  zero_->params().finish_gathers();
  const std::vector<Microbatch> microbatches = batches_->take(step);
  const std::string origin = find_non_finite(*executor_, *zero_, step, seed_, [&](int m, const Probe& probe) {
    return loss_of(microbatches[static_cast<std::size_t>(m)], probe);
  });
  const std::string saved = step > 1 ? text(", saved in ", save(step - 1).string()) : "";
  throw NonFiniteError(text("step ", step, ": the gradients are not finite (loss ", human_number(result.loss),
                            ", norm ", human_number(result.norm), ")\n  ", origin,
                            "\n  nothing was updated: weights and states are those after step ", step - 1, saved,
                            "\n  fix: a lower optimizer.lr or a longer warm-up; checks.non_finite = \"skip\" goes on "
                            "without such steps"));
}

}  // namespace trireme
