#include "trireme/train/run/training_report.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <set>

#include <sys/utsname.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/shell_word.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/describe/counts.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/metrics/events_file.hpp"
#include "trireme/metrics/run_folder.hpp"
#include "trireme/planner/memory.hpp"
#include "trireme/planner/peak_tflops.hpp"
#include "trireme/planner/search.hpp"
#include "trireme/runtime/rank/gpu_name.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/schedule/replay.hpp"
#include "trireme/train/run/run_header.hpp"
#include "trireme/train/save/save_weights.hpp"

namespace trireme {

namespace {

/// "gloo", or "gloo and shared memory" where some groups are of one host; empty: of one rank.
std::string transports(const Mesh& mesh) {
  std::set<std::string> all{mesh.world_group().transport()};
  for (const auto& [axis, degree] : mesh.grid().axes()) all.insert(mesh.group(axis).transport());
  std::string out;
  for (const std::string& one : all) out += text(out.empty() || one.empty() ? "" : " and ", one);
  return out;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

/// The layers of each chunk in the order of the model, "0-3 (rank 0) | 4-7 (rank 1)".
std::string stages_line(const Config& config, const std::string& schedule, double ideal_bubble) {
  std::string layers;
  for (const PipelineChunk& chunk : pipeline_chunks(config.model, config.parallelism))
    layers +=
        text(layers.empty() ? "" : " | ", chunk.layers.begin, "-", chunk.layers.end - 1, " (rank ", chunk.stage, ")");
  return text(schedule, " · layers ", layers, " · ideal bubble ", human_number(std::round(1000 * ideal_bubble) / 10),
              " %");
}

}  // namespace

TrainingReport::TrainingReport(const Config& config, const ParallelContext& context, const TrainIo& io,
                               const std::string& data, const checkpoint::TrainingState* resumed,
                               const std::string& resumed_from)
    : config_(config),
      context_(context),
      folder_(io.folder),
      command_(io.command),
      output_(config, io.folder, io.out, io.terminal),
      first_step_(resumed != nullptr ? resumed->step + 1 : 1) {
  const at::Device device = context.device();
  peak_tflops_ = config_.metrics.peak_tflops;
  if (peak_tflops_ == 0 && device.is_cuda())
    peak_tflops_ = planner::peak_tflops(gpu_name(device.index()), config_.precision.param);
  if (resumed != nullptr) {
    output_.continue_from(resumed->loss_window, resumed->norm_window);
    tokens_ = resumed->tokens;
  }
  replace_file(io.folder / "config.toml", io.config_text);
  const std::string no_link = metrics::point_latest_to(io.folder);
  io.status("");
  print_header(io, data, resumed_from);
  if (!no_link.empty()) output_.console().warning(no_link);
  output_.console().begin(config_.training.steps);
}

/// What a report on this run says of its environment, and what it needs to know of the device.
void TrainingReport::note_start(const TrainIo& io, const std::string& backend) const {
  const Environment& env = context_.environment();
  const LibtorchFacts facts = libtorch_facts();
  utsname system{};
  ::uname(&system);
  metrics::add_event(io.folder, "start",
                     {{"program", io.program},
                      {"command", io.command},
                      {"libtorch", facts.built_with},
                      {"blas", facts.blas},
                      {"threads", facts.threads},
                      {"host", host_name()},
                      {"system", text(system.sysname, " ", system.release, " ", system.machine)},
                      {"pid", ::getpid()},
                      {"launcher", env.launcher},
                      {"attempt", env.attempt},
                      {"ranks", env.world_size},
                      {"ranks_per_host", env.local_world_size},
                      {"backend", backend},
                      {"device", context_.device().is_cuda() ? "cuda" : "cpu"},
                      {"device_name", context_.device().is_cuda() ? gpu_name(context_.device().index()) : ""},
                      {"peak_tflops", peak_tflops_},
                      {"compute_dtype", config_.precision.param},
                      {"layout", context_.mesh().grid().str()},
                      {"zero", config_.parallelism.zero},
                      {"ep", config_.parallelism.ep},
                      {"expert_tp", config_.parallelism.expert_tp},
                      {"step", first_step_},
                      {"steps", config_.training.steps},
                      {"predicted_bytes", predicted_bytes_},
                      {"predicted_step_s", predicted_step_s_}});
}

void TrainingReport::add_to(checkpoint::TrainingState& state) const {
  state.tokens = tokens_;
  const auto values = [](const metrics::ZScore& z) {
    return std::vector<double>(z.values().begin(), z.values().end());
  };
  state.loss_window = values(output_.loss_z());
  state.norm_window = values(output_.norm_z());
}

void TrainingReport::saved(std::int64_t step, std::uint64_t bytes, double blocked_seconds) {
  metrics::add_event(folder_, "checkpoint", {{"step", step}, {"bytes", bytes}, {"blocked_s", blocked_seconds}});
  output_.console().note(text("✓ checkpoint ", step, " (", human_bytes(static_cast<double>(bytes)), ", ",
                              human_number(std::round(blocked_seconds * 1e4) / 10), " ms blocked)"));
}

/// Empty on a device that the planner does not know, and for what it does not predict.
std::string TrainingReport::predict_speed() {
  const at::Device device = context_.device();
  const std::optional<planner::Gpu> gpu = device.is_cuda() ? planner::find_gpu(gpu_name(device.index())) : std::nullopt;
  const std::string& dtype = config_.precision.param;
  if (!gpu || config::family_of(config_.model).is_registered() || config_.comm.share_gpu ||
      (dtype != "bfloat16" && dtype != "float16"))
    return "";
  planner::Machine machine{*gpu, context_.environment().world_size};
  machine.gpu.per_host = context_.environment().local_world_size;
  const planner::Plan plan = planner::predict_plan(config_, machine, planner::software_named("trireme"));
  predicted_step_s_ = plan.time.total();
  return "predicted " + planner::prediction_text(plan, machine);
}

void TrainingReport::print_header(const TrainIo& io, const std::string& data, const std::string& resumed_from) {
  const bool gpu = context_.device().is_cuda();
  const planner::MemoryPlan plan = planner::predict_memory(config_, config_.precision.param, gpu);
  predicted_bytes_ = plan.total();
  const std::string speed = predict_speed();
  const Environment& env = context_.environment();
  const bool automatic = config::parse_comm_backend(config_.comm.backend) == config::CommBackend::automatic;
  const std::string carriers = transports(context_.mesh());
  note_start(io, !carriers.empty() ? carriers : automatic ? gpu ? "nccl" : "gloo" : config_.comm.backend);
  RunHeader header;
  header.program = text(io.program, " · libtorch ", libtorch_facts().built_with, " · ", env.world_size,
                        env.world_size == 1 ? " rank" : " ranks", " (", env.launcher, "; ",
                        carriers.empty() ? "" : carriers + ", ", gpu ? "cuda" : "cpu", ")");
  const ParallelismConfig& p = config_.parallelism;
  header.layout =
      text(context_.mesh().grid().str(),
           config_.model.num_local_experts > 0 ? text(" ep=", p.ep, " expert_tp=", p.expert_tp) : "", " zero=", p.zero);
  header.data = data;
  if (config_.parallelism.pp > 1) {
    const schedule::Schedule schedule = pipeline_schedule(config_.parallelism, config_.training.grad_accum);
    ideal_bubble_ = schedule::replay(schedule).bubble_share();
    header.stages = stages_line(config_, schedule.name, ideal_bubble_);
  }
  header.memory = planner::describe(plan);
  header.speed = speed;
  header.output = text(io.folder.string(), " · metrics.jsonl", config_.metrics.tensorboard ? " · tb/" : "",
                       " · checkpoints/ · config.toml");
  std::vector<std::pair<std::string, std::string>> lines = run_header_lines(config_, header);
  if (!resumed_from.empty()) lines.emplace_back("resume", resumed_from);
  output_.console().header(lines);
  std::vector<std::string> warnings = io.warnings;
  const bool is_registered = config::family_of(config_.model).is_registered();  // which is a warning of the config
  if (const std::string lack = what_transformers_lacks(config_.model, config_.precision.param);
      !lack.empty() && !is_registered)
    warnings.push_back("the weights will be saved without a config.json for transformers: " + lack);
  for (const std::string& warning : warnings) output_.console().warning(warning);
}

void TrainingReport::step(std::int64_t step, const StepResult& result, std::int64_t seq_len, std::int64_t peak_bytes,
                          std::optional<double> validation_loss) {
  const StepTiming& t = result.timing;
  const std::int64_t now = steady_ns(), before = last_end_ns_ > 0 ? last_end_ns_ : t.begin_ns;
  last_end_ns_ = now;
  const std::int64_t tokens = config_.training.global_batch_size * seq_len;
  tokens_ += tokens;
  const double ranks = context_.world_size(), rate = static_cast<double>(tokens) / t.step;
  metrics::StepRecord record{
      .step = step,
      .time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(),
      .steps = result.is_last ? step : config_.training.steps,  // the last step is always shown
      .loss = result.loss,
      .grad_norm = result.norm,
      .lr = result.lr,
      .tokens = tokens_,
      .tokens_per_sec = rate,
      .tokens_per_sec_per_rank = rate / ranks,
      .step_time_s = static_cast<double>(now - before) * 1e-9,
      .train_time_s = t.step,
      .data_time_frac = t.data / t.step,
      .mem_peak_gib = static_cast<double>(peak_bytes) / 0x1p30,
      .skipped = !result.finite || result.norm_is_outlier,
      .val_loss = validation_loss};
  if (result.checkpoint_seconds > 0) record.checkpoint_s = result.checkpoint_seconds;
  add_times(record, t);
  total_ += t.shares * t.step;
  if (config_.parallelism.pp > 1) {
    if (context_.device().is_cpu()) record.bubble_frac = result.bubble;  // by the host's clock
    record.bubble_ideal_frac = ideal_bubble_;
  }
  if (seq_len != counted_seq_len_) {  // only if it changes: for a family of one's own, counting makes a model
    flops_per_token_ = config::model_flops_per_token(config_.model, seq_len, config::CountedScores::causal);
    recomputed_flops_per_token_ =
        config::recompute_flops_per_token(config_.model, seq_len, config::CountedScores::causal,
                                          config::recompute_of(config_.activation_checkpoint.mode));
    counted_seq_len_ = seq_len;
  }
  record.tflops_per_rank = flops_per_token_ * rate / ranks / 1e12;
  const double hardware = (flops_per_token_ + recomputed_flops_per_token_) * rate / ranks / 1e12;
  if (recomputed_flops_per_token_ > 0) record.hardware_tflops_per_rank = hardware;
  if (peak_tflops_ > 0) {
    record.mfu = *record.tflops_per_rank / peak_tflops_;
    record.hfu = hardware / peak_tflops_;
  }
  if (result.start_bytes) record.mem_start_gib = static_cast<double>(*result.start_bytes) / 0x1p30;
  const ModelConfig& m = config_.model;
  if (m.num_local_experts > 0 && (m.router_aux_loss_coef > 0 || m.router_z_loss_coef > 0))
    record.aux_loss = result.auxiliary_loss;
  if (config_.precision.param == "float16") record.loss_scale = result.scale;
  note(step, result,
       step == first_step_ || step % config_.metrics.interval == 0 || step == record.steps ||
           validation_loss.has_value());
  output_.step(record);
  if (metrics::is_kept(step, context_.world_size())) {
    const bool timed = context_.device().is_cpu(), pipeline = config_.parallelism.pp > 1;
    output_.ranks({.step = step,
                   .own_work_s = timed ? t.own_work : std::vector<double>(),
                   .bubbles = timed && pipeline ? t.bubbles : std::vector<double>(),
                   .peak_bytes = result.peaks});
  }
  if (step > first_step_) {
    own_work_.resize(t.own_work.size());
    for (std::size_t rank = 0; rank < own_work_.size(); ++rank) own_work_[rank] += t.own_work[rank];
  }
}

/// Nothing of this is known on a GPU, where a wait only orders streams and does not block the host.
void TrainingReport::add_times(metrics::StepRecord& record, const StepTiming& t) const {
  if (!context_.device().is_cpu()) return;
  record.data_time_frac = t.shares.data;
  record.forward_time_frac = t.shares.forward;
  record.backward_time_frac = t.shares.backward;
  record.comm_exposed_frac = t.shares.communication;
  if (config_.parallelism.pp > 1) record.bubble_time_frac = t.shares.bubble;
  record.optimizer_time_frac = t.shares.optimizer;
  record.other_time_frac = t.shares.other;
  if (t.own_work.size() < 2) return;
  const auto slowest = std::ranges::max_element(t.own_work);
  record.slowest_rank = static_cast<int>(slowest - t.own_work.begin());
  record.own_work_max_s = *slowest;
  record.own_work_min_s = *std::ranges::min_element(t.own_work);
}

/// Prints a line above the row of this step, if there is something to report.
void TrainingReport::note(std::int64_t step, const StepResult& result, bool is_shown) {
  if (!result.finite) ++skipped_since_shown_;
  if (result.norm_is_outlier)
    output_.console().warning(text("step ", step, ": update skipped, its gradient norm of ", human_number(result.norm),
                                   " exceeds optimizer.skip_z = ", human_number(config_.optimizer.skip_z)));
  if (!is_shown) return;
  std::string note = step == first_step_ ? "first step" : "";
  if (skipped_since_shown_ > 0)
    note += text(note.empty() ? "" : "; ", skipped_since_shown_, skipped_since_shown_ == 1 ? " update" : " updates",
                 " skipped: non-finite gradients");
  skipped_since_shown_ = 0;
  if (!note.empty()) output_.console().note(note);
}

void TrainingReport::finish(bool interrupted, std::int64_t peak_bytes, const std::filesystem::path& saved,
                            double seconds, double validation_seconds) {
  metrics::RunSummary summary{.seconds = seconds, .interrupted = interrupted};
  summary.memory_predicted_gib = predicted_bytes_ / 0x1p30;
  summary.memory_measured_gib = static_cast<double>(peak_bytes) / 0x1p30;
  const bool is_cpu = context_.device().is_cpu();
  const auto add_share = [&, all = seconds > 0 ? seconds : 1](const char* name, double of) {
    summary.shares.emplace_back(name, of / all);
  };
  if (is_cpu) {
    add_share("forward", total_.forward);
    add_share("backward", total_.backward);
    if (context_.world_size() > 1) add_share("comm exposed", total_.communication);
    if (config_.parallelism.pp > 1) add_share("bubble", total_.bubble);
    add_share("optimizer", total_.optimizer);
  } else {  // the host does not know the parts
    add_share("training", total_.sum() - total_.data - total_.other);
  }
  if (validation_seconds > 0) add_share("validation", validation_seconds);
  double known = 0;
  for (const auto& [name, share] : summary.shares) known += share;
  summary.shares.emplace_back("data+log", std::max(0.0, 1 - known));
  if (is_cpu && own_work_.size() > 1) summary.slowest = metrics::slowest_rank(own_work_);
  if (!saved.empty()) {
    summary.saved = saved;
    metrics::add_event(folder_, "saved", {{"folder", saved.filename().string()}});
  }
  summary.next = next_commands(interrupted, !saved.empty());
  output_.finish(summary);
}

/// What users do after a run, as commands that work in this folder as they are.
std::vector<std::string> TrainingReport::next_commands(bool interrupted, bool has_saved) const {
  const std::string run = shell_word(folder_.string()), launcher = context_.environment().launcher;
  std::vector<std::string> out;
  if (interrupted && !command_.empty() && (launcher == "trireme launch" || launcher == "alone"))
    out.push_back(command_ + "   # resumes after the last step");
  out.push_back(text("trireme report ", run, "   # one HTML page"));
  // `trireme` itself has no family that a program has registered.
  if (interrupted || !has_saved || config::family_of(config_.model).is_registered()) return out;
  if (!config_.tokenizer.path.empty()) out.push_back(text("trireme generate ", run, " -p 'Once upon a time'"));
  if (context_.world_size() > 1)
    out.push_back(text("trireme verify ", shell_word((folder_ / "config.toml").string()), " -n ", context_.world_size(),
                       "   # against one rank"));
  return out;
}

}  // namespace trireme
