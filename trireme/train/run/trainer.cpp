#include "trireme/train/run/trainer.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include <ATen/ops/zeros.h>

#include "trireme/base/stop_signals.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/kernels/cuda_graph.hpp"
#include "trireme/nn/fp8_history.hpp"
#include "trireme/parallel/zero/saved_state.hpp"
#include "trireme/runtime/memory/device_snapshot.hpp"
#include "trireme/train/run/step_in_flight.hpp"
#include "trireme/train/save/save_buffer.hpp"
#include "trireme/train/setup/component_options.hpp"
#include "trireme/train/setup/dtypes.hpp"

namespace trireme {
namespace {

Config resolved(Config config, at::Device device) {
  resolve_dtypes(config, device);
  return config;
}

StallLimits stall_limits(const Config& config) {
  return {.warning_s = config.checkpoint.stall_warning_s, .timeout_s = config.checkpoint.stall_timeout_s};
}

std::string describe(const Resumed& resumed) {
  std::string out = text(resumed.path.string(), ", after step ", resumed.manifest.training.step);
  for (const std::string& change : resumed.changes.noted) out += text(" · ", change);
  return out;
}

}  // namespace

Trainer::Trainer(Config config, ParallelContext& context, const ProcessSetup& process, TrainIo io)
    : given_(fingerprint_of_config(config)),
      config_(resolved(std::move(config), context.device())),
      context_(context),
      mesh_(context.mesh()),
      io_(std::move(io)),
      memory_(context.device(), process),
      lr_(lr_options(config_)),
      non_finite_(config::parse_non_finite(config_.checks.non_finite)),
      tracer_(config_.profiler.steps, io_.folder / config_.profiler.dir, context.world(),
              context.device().is_cuda() ? "nccl" : "gloo", memory_, context.device()),
      random_(RandomSource::of_process(static_cast<std::uint64_t>(config_.run.seed), context.device())) {
  if (context.device().is_cuda() && config_.profiler.memory_snapshot != "never") record_device_memory();
  if (context.rank() == 0) own_ = std::make_unique<OwnFolder>(io_.folder, io_.warnings);
  const std::vector<std::filesystem::path> candidates =
      checkpoints_to_resume(own_.get(), config_.checkpoint.resume, mesh_.world());
  if (config_.precision.param == "float16") scale_.emplace(loss_scale_options(config_));
  io_.status("opening the data");
  batches_ = std::make_unique<Batches>(config_, mesh_, context.device());
  for (const std::string& warning : batches_->data().warnings()) io_.warnings.push_back(warning);
  if (context.rank() == 0)
    beside_weights_ = files_beside_weights({.model = config_.model,
                                            .dtype = config_.precision.param,
                                            .tokenizer = batches_->data().tokenizer(),
                                            .tokenizer_path = config_.tokenizer.path,
                                            .source = source_folder(config_.model)},
                                           io_.warnings);
  const bool resumes = !candidates.empty();
  io_.status(resumes || config_.model.init == "random" ? "building the model"
                                                       : text("reading the weights, ", config_.model.init));
  model_ = std::make_unique<TrainingModel>(config_, mesh_, context.device(),
                                           static_cast<int>(batches_->num_microbatches()), resumes, io_.warnings);
  if (resumes) resume_from_checkpoint(candidates);
  seed_generators(random_, static_cast<std::uint64_t>(config_.run.seed), begin_, context.rank());
  if (resumed_ && !resumed_->random.empty())
    set_random_state(random_, fitted_to(random_, random_state_from_bytes(resumed_->random),
                                        context.device().is_cuda() ? context.device().index() : 0));
  if (Fp8History* history = model_->fp8_history(); history && resumed_)
    history->set_state(fp8_state_from_bytes(resumed_->fp8_history));
  // Not before: the threads that load use the default stream.
  if (model_->graphs() != nullptr) kernels::use_own_stream(context.device());
  start_bytes_ = peak_bytes_ = agree(at::zeros({}, at::TensorOptions(at::kDouble).device(context.device())),
                                     {.peak_bytes = memory_.take_peak()}, mesh_)
                                   .peak_bytes;
  if (own_) {
    const std::string missing = missing_space(zero(), config_, own_->checkpoints());
    require<CheckpointError>(missing.empty(), missing);
    own_->begin_after(begin_, resumed_ ? resumed_->damaged : std::vector<std::filesystem::path>(), io_.warnings);
  }
  const bool nanotron = config_.checkpoint.format == "nanotron";
  if (nanotron && context.rank() == 0)
    beside_weights_.push_back(nanotron_optimizer_config(config_.optimizer, mesh_.grid()));
  saver_ = std::make_unique<CheckpointSaver>(
      SaverOptions{.folder = io_.folder / "checkpoints",
                   .keep = config_.checkpoint.keep,
                   .keep_every = config_.checkpoint.keep_every,
                   .buffer_bytes = save_buffer_bytes(),
                   .small_files = beside_weights_,
                   .before_commit =
                       [this] {
                         if (own_) own_->check();
                       },
                   .format = nanotron ? CheckpointFormat::nanotron : CheckpointFormat::trireme,
                   .lr_state =
                       [this](std::int64_t step) {
                         return LrState{.last_step = step, .last_lr = lr_(step), .base_lr = config_.optimizer.lr};
                       },
                   .stall = stall_limits(config_),
                   // The way out would wait for the lock of the run's folder, which is on the same storage.
                   .on_stall =
                       [](const std::string& why) {
                         std::cerr << "error: " << why << std::endl;
                         std::_Exit(static_cast<int>(ExitCode::storage));
                       }},
      mesh_);
  if (context.rank() == 0)
    report_ = std::make_unique<TrainingReport>(config_, context, io_, batches_->data().describe(),
                                               resumed_ ? &resumed_->manifest.training : nullptr,
                                               resumed_ ? describe(*resumed_) : "");
}

/// Everything that the steps depend on, apart from the config.
void Trainer::resume_from_checkpoint(const std::vector<std::filesystem::path>& candidates) {
  io_.status(text("reading the checkpoint, ", candidates.front().string()));
  resumed_ = resume(zero(), mesh_,
                    {.candidates = candidates,
                     .config = given_,
                     .data = batches_->data().identity(),
                     .accepted = config_.checkpoint.accept_changes,
                     .stall = stall_limits(config_)},
                    io_.warnings);
  const checkpoint::TrainingState& state = resumed_->manifest.training;
  begin_ = state.step;
  require_steps_left(resumed_->path, begin_, config_.training.steps);
  skipped_ = state.skipped;
  norms_ = metrics::ZScore({state.norm_window.begin(), state.norm_window.end()});
  batches_->continue_from(resumed_->changes.new_data
                              ? batches_->data().sampler().position(begin_)
                              : data::DataPosition{.step = begin_, .consumed = state.samples_consumed});
  if (scale_ && state.loss_scale)
    scale_->set_state({.scale = state.loss_scale->scale,
                       .good_steps = state.loss_scale->good_steps,
                       .patience = state.loss_scale->patience});
}

std::size_t Trainer::save_buffer_bytes() {
  double state = 0;
  for (const StateSlice& slice : slices_to_save(zero())) state += static_cast<double>(slice.values.nbytes());
  const SaveBuffer buffer = save_buffer(config_, state, context_.environment().local_world_size);
  if (!buffer.warning.empty() && context_.rank() == 0) io_.warnings.push_back(buffer.warning);
  return static_cast<std::size_t>(buffer.bytes);
}

Trainer::~Trainer() = default;

ExitCode Trainer::run() {
  const std::int64_t steps = config_.training.steps;
  std::int64_t done = begin_;
  const Stopwatch run_time;
  announce_stop(begin_ + 1);
  if (config_.profiler.operations) start_profiler();
  std::unique_ptr<StepInFlight> before;  // its results are read during the next step: the device need not wait
  while (done < steps && !stop_) {
    const std::int64_t step = done + 1;
    std::unique_ptr<StepInFlight> now = start_step(step, std::move(before));
    done = step;
    const bool at_once = is_read_at_once(step);
    announce_stop(step + (is_read_at_once(step + 1) ? 1 : 2));  // a signal from now on is for the next agreement
    now->is_read_at_once = at_once;
    if (at_once)
      finish_step(std::move(now));
    else
      before = std::move(now);
    if (step == begin_ + 1) model_->tune_products();
    if (profiler_) profiler_->step();
    if (profiler_) model_->unit_trace().annotate(profiler_->is_active() && profiler_->with_stack());
    if (at_once && is_saved(step) && step < steps && !stop_) {
      save_asked_ = false;
      start_save(step, Last::no);
    }
  }
  tracer_.finish();
  profiler_.reset();
  const double seconds = run_time.seconds();
  const bool interrupted = stop_ && done < steps;
  // A scheduler that takes the machine away does not wait for more than the checkpoint.
  const SavedWeights saved = save(done, stop_ == ExitCode::preempted && interrupted ? Export::no : Export::yes);
  if (report_ && unlabelled_ > 1) report_->warning(text(unlabelled_, " steps had no token with a label, and no loss"));
  if (report_) report_->finish(interrupted, peak_bytes_, saved.folder, seconds, validation_seconds_);
  check_trained(done, skipped_, saved);
  return interrupted ? *stop_ : ExitCode::done;
}

bool Trainer::is_validated(std::int64_t step) const {
  const std::int64_t every = config_.validation.interval;
  return every > 0 && (step % every == 0 || step == config_.training.steps);
}

bool Trainer::is_saved(std::int64_t step) const {
  return save_asked_ || (config_.checkpoint.interval > 0 && step % config_.checkpoint.interval == 0);
}

/// Whether the results of a step are read before the next one begins, after start_step(): the host waits for a CPU
/// anyway, and otherwise what follows depends on them.
bool Trainer::is_read_at_once(std::int64_t step) const {
  const bool late = context_.device().is_cuda() || io_.late_results;
  return !late || step == begin_ + 1 || step == config_.training.steps || stop_ || is_validated(step) ||
         is_saved(step) || saver_->in_progress() || scale_ || model_->has_biased_routers() || compares_replicas(step) ||
         is_traced(step) || is_traced(step + 1);  // nothing of another step is within a trace
}

bool Trainer::compares_replicas(std::int64_t step) const {
  return config_.checks.replicas_every > 0 && step % config_.checks.replicas_every == 0;
}

bool Trainer::is_traced(std::int64_t step) const {
  return std::ranges::find(config_.profiler.steps, step) != config_.profiler.steps.end();
}

void Trainer::start_profiler() {
  const ProfilerConfig& p = config_.profiler;
  profiler_.emplace(ProfilerOptions{.wait = p.wait,
                                    .warmup = p.warmup,
                                    .active = p.active,
                                    .with_stack = p.with_stack,
                                    .folder = io_.folder / p.dir / "operations",
                                    .rank = context_.rank(),
                                    .world_size = context_.world_size(),
                                    .backend = context_.device().is_cuda() ? "nccl" : "gloo"});
  model_->unit_trace().annotate(profiler_->is_active() && profiler_->with_stack());
}

/// What a stop signal is answered with.
void Trainer::announce_stop(std::int64_t step) {
  if (report_) StopSignals::announce("finishing step ", std::min(step, config_.training.steps), ", then saving");
}

}  // namespace trireme
