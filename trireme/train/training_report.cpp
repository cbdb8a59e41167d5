#include "trireme/train/training_report.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/counts.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/config/schema/pipeline.hpp"
#include "trireme/planner/memory.hpp"
#include "trireme/report/run_folder.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/schedule/replay.hpp"
#include "trireme/train/run_header.hpp"
#include "trireme/train/save_weights.hpp"

namespace trireme {

namespace {

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
      output_(config, io.folder, io.out, io.terminal),
      first_step_(resumed != nullptr ? resumed->step + 1 : 1) {
  if (resumed != nullptr) {
    output_.continue_from(resumed->loss_window, resumed->norm_window);
    tokens_ = resumed->tokens;
  }
  replace_file(io.folder / "config.toml", io.config_text);
  const std::string no_link = report::point_latest_to(io.folder);
  io.status("");
  print_header(io, data, resumed_from);
  if (!no_link.empty()) output_.console().warning(no_link);
  output_.console().begin(config_.training.steps);
}

void TrainingReport::add_to(checkpoint::TrainingState& state) const {
  state.tokens = tokens_;
  const auto values = [](const report::ZScore& z) { return std::vector<double>(z.values().begin(), z.values().end()); };
  state.loss_window = values(output_.loss_z());
  state.norm_window = values(output_.norm_z());
}

void TrainingReport::saved(std::int64_t step, std::uint64_t bytes, double blocked_seconds) {
  output_.console().note(text("✓ checkpoint ", step, " (", human_bytes(static_cast<double>(bytes)), ", ",
                              human_number(std::round(blocked_seconds * 1e4) / 10), " ms blocked)"));
}

void TrainingReport::print_header(const TrainIo& io, const std::string& data, const std::string& resumed_from) {
  const bool gpu = context_.device().is_cuda();
  const planner::MemoryPlan plan = planner::predict_memory(config_, config_.precision.param, gpu);
  predicted_bytes_ = plan.total();
  const Environment& env = context_.environment();
  const bool automatic = config::parse_comm_backend(config_.comm.backend) == config::CommBackend::automatic;
  const std::string backend = automatic ? gpu ? "nccl" : "gloo" : config_.comm.backend;
  RunHeader header;
  header.program = text(io.program, " · libtorch ", libtorch_facts().built_with, " · ", env.world_size,
                        env.world_size == 1 ? " rank" : " ranks", " (", env.launcher, "; ", backend, ", ",
                        gpu ? "cuda" : "cpu", ")");
  const ParallelismConfig& p = config_.parallelism;
  header.layout =
      text(context_.mesh().grid().str(),
           config_.model.num_local_experts > 0 ? text(" ep=", p.ep, " expert_tp=", p.expert_tp) : "", " zero=", p.zero);
  header.data = data;
  if (config_.parallelism.pp > 1) {
    const schedule::Schedule schedule = pipeline_schedule(config_.parallelism, config_.training.grad_accum);
    const double fraction = schedule::replay(schedule).bubble_fraction;  // of the work
    ideal_bubble_ = fraction / (1 + fraction);
    header.stages = stages_line(config_, schedule.name, ideal_bubble_);
  }
  header.memory = planner::describe(plan);
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
  total_ += t;
  const std::int64_t now = steady_ns(), before = last_end_ns_ > 0 ? last_end_ns_ : t.begin_ns;
  last_end_ns_ = now;
  const std::int64_t tokens = config_.training.global_batch_size * seq_len;
  tokens_ += tokens;
  const double ranks = context_.world_size(), rate = static_cast<double>(tokens) / t.step;
  report::StepRecord record{
      .step = step,
      .time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(),
      .steps = result.stop ? step : config_.training.steps,  // the last step is always shown
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
      .skipped = !result.finite,
      .val_loss = validation_loss};
  if (result.checkpoint_seconds > 0) record.checkpoint_s = result.checkpoint_seconds;
  // On a GPU a wait only orders streams and does not block the host.
  if (context_.device().is_cpu()) record.comm_exposed_frac = std::min(1.0, t.waited / t.step);
  if (config_.parallelism.pp > 1) {
    if (context_.device().is_cpu()) record.bubble_frac = result.bubble;  // by the host's clock
    record.bubble_ideal_frac = ideal_bubble_;
  }
  if (seq_len != counted_seq_len_) {  // only if it changes: for a family of one's own, counting makes a model
    flops_per_token_ = config::model_flops_per_token(config_.model, seq_len, config::CountedScores::causal);
    counted_seq_len_ = seq_len;
  }
  record.tflops_per_rank = flops_per_token_ * rate / ranks / 1e12;
  if (result.start_bytes) record.mem_start_gib = static_cast<double>(*result.start_bytes) / 0x1p30;
  const ModelConfig& m = config_.model;
  if (m.num_local_experts > 0 && (m.router_aux_loss_coef > 0 || m.router_z_loss_coef > 0))
    record.aux_loss = result.auxiliary_loss;
  if (config_.precision.param == "float16") record.loss_scale = result.scale;
  note(step, result,
       step == first_step_ || step % config_.metrics.interval == 0 || step == record.steps ||
           validation_loss.has_value());
  output_.step(record);
}

/// Prints a line above the row of this step, if there is something to report.
void TrainingReport::note(std::int64_t step, const StepResult& result, bool is_shown) {
  if (!result.finite) ++skipped_since_shown_;
  if (!is_shown) return;
  std::string note = step == first_step_ ? "first step" : "";
  if (skipped_since_shown_ > 0)
    note += text(note.empty() ? "" : "; ", skipped_since_shown_, skipped_since_shown_ == 1 ? " update" : " updates",
                 " skipped: gradients that are not finite");
  skipped_since_shown_ = 0;
  if (!note.empty()) output_.console().note(note);
}

void TrainingReport::finish(bool interrupted, std::int64_t peak_bytes, const std::filesystem::path& saved,
                            double seconds, double validation_seconds) {
  report::RunSummary summary{.seconds = seconds, .interrupted = interrupted};
  summary.memory_predicted_gib = predicted_bytes_ / 0x1p30;
  summary.memory_measured_gib = static_cast<double>(peak_bytes) / 0x1p30;
  const double sum = seconds > 0 ? seconds : 1;
  summary.shares = {{"forward", total_.forward / sum},
                    {"backward", total_.backward / sum},
                    {"update", total_.update / sum},
                    {"data", total_.data / sum}};
  if (validation_seconds > 0) summary.shares.emplace_back("validation", validation_seconds / sum);
  if (context_.device().is_cpu())
    summary.shares.emplace_back("of all that waiting for other ranks", total_.waited / sum);
  if (!saved.empty()) summary.saved = saved;
  output_.finish(summary);
}

}  // namespace trireme
