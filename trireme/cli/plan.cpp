// `trireme plan CONFIG --gpus 64 --gpu h100`: the fastest layouts that fit, before a GPU is rented.
#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/base/table.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/cli/config_output.hpp"
#include "trireme/cli/named_layout.hpp"
#include "trireme/cli/plan_drawing.hpp"
#include "trireme/config/read/derive.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/read/show.hpp"
#include "trireme/config/rules/validate.hpp"
#include "trireme/config/settings/toml_file.hpp"
#include "trireme/planner/calibration.hpp"
#include "trireme/planner/goodput.hpp"
#include "trireme/planner/search.hpp"

namespace trireme::cli {
namespace {

using planner::Plan;

constexpr double kDefaultTokens = 4'194'304;  // per step
constexpr double kUsableMemory = 0.96;        // the driver keeps the rest
constexpr int kMostPlans = 100;
constexpr double kMostTokens = 1e15;
constexpr double kHostCopyBandwidth = 10e9;  // from a GPU, while the host does other things

double giga(double bytes) { return bytes / 1e9; }

/// Two digits, or whole numbers.
std::string rounded(double value) { return human_number(value < 10 ? std::round(10 * value) / 10 : std::round(value)); }

std::string duration_text(double seconds) {
  if (seconds < 2 * 3600) return rounded(seconds / 60) + " minutes";
  return seconds < 2 * 86400 ? rounded(seconds / 3600) + " hours" : rounded(seconds / 86400) + " days";
}

std::string percent(double part) { return text(std::round(1000 * part) / 10, " %"); }

class Planning {
 public:
  Planning(const PlanCommand& command, Console& console) : command_(command), console_(console) {
    require<ConfigError>(command.gpus >= 1 && command.gpus <= 1'000'000, "--gpus ", command.gpus,
                         ": must be from 1 to 1000000\n  fix: trireme plan CONFIG --gpus 64 --gpu h100");
    require<ConfigError>(command.count >= 1 && command.count <= kMostPlans, "--count ", command.count,
                         ": must be from 1 to ", kMostPlans);
    require<ConfigError>(
        command.per_host >= 0 && command.network_gb_s >= 0 && command.gpu_memory_gb >= 0 && command.mtbf_hours > 0,
        "plan: sizes must not be negative, and --mtbf-hours must be positive");
    for (const auto& [option, tokens] :
         {std::pair{"--tokens-per-step", command.tokens_per_step}, {"--tokens", command.tokens}})
      require<ConfigError>(tokens >= 0 && tokens <= kMostTokens, option, " ", tokens, ": must be from 1 to ",
                           kMostTokens);
    if (command.machine_file.empty()) {
      machine_ = {planner::gpu_named(command.gpu), command.gpus};
      software_ = planner::software_named(command.software);
    } else {
      const planner::Calibration measured = planner::read_calibration(command.machine_file);
      machine_ = measured.machine;
      machine_.gpus = command.gpus;
      software_ = measured.software;
    }
    if (command.per_host > 0) machine_.gpu.per_host = command.per_host;
    if (command.network_gb_s > 0) machine_.gpu.network_bandwidth = command.network_gb_s * 1e9;
    if (command.gpu_memory_gb > 0) machine_.gpu.memory_bytes = command.gpu_memory_gb * 1e9;
    require<ConfigError>(command.gpus <= machine_.gpu.per_host || command.gpus % machine_.gpu.per_host == 0, "--gpus ",
                         command.gpus, ": not a multiple of the ", machine_.gpu.per_host,
                         " GPUs of a host\n  fix: --gpus ",
                         command.gpus / machine_.gpu.per_host * machine_.gpu.per_host, ", or --per-host");
    if (command.file.empty()) return;
    toml_ = config::read_config_file(command.file);
    settings_ = config::parse_toml(command.file, toml_);
  }

  void run() {
    const planner::PlanQuestion question{.config = model_and_batch(),
                                         .machine = machine_,
                                         .software = software_,
                                         .memory_bytes = machine_.gpu.memory_bytes * kUsableMemory,
                                         .accepts = [this](const Config& config) { return is_valid(config); }};
    const planner::FoundPlans found = command_.layout.empty()
                                          ? planner::find_plans(question, static_cast<std::size_t>(command_.count))
                                          : only(question);
    if (command_.json)
      print_json(question, found);
    else
      print(question, found);
    if (found.plans.empty()) throw_none_fits(question, found);
    if (found.plans.front().memory_bytes > question.memory_bytes) {  // of --layout
      const std::string words =
          text(human_bytes(found.plans.front().memory_bytes), " of ", human_bytes(question.memory_bytes), " per GPU");
      require<ConfigError>(command_.output.empty(), "--layout ", command_.layout, " does not fit: ", words,
                           "\n  fix: without --layout, or --activation_checkpoint.mode full, or more GPUs");
      console_.err << "warning: it does not fit: " << words << "\n";
    }
    if (!command_.output.empty()) write_best(found.plans.front());
    if (!command_.svg.empty()) {
      replace_file(command_.svg, plan_drawing_svg(found.plans, question.memory_bytes));
      console_.err << "written to " << command_.svg << "\n";
    }
  }

 private:
  /// The config with other settings; its layout only as they say.
  config::LoadedConfig loaded_with(const std::vector<std::pair<std::string, std::string>>& more) const {
    config::Settings from_file;
    const auto is_replaced = [&more](const std::string& key) {
      for (const char* of_a_layout : {"training.global_batch_size", "parallelism.stages", "parallelism.pp_schedule",
                                      "parallelism.pp_schedule_file", "parallelism.virtual_stages",
                                      "parallelism.expert_tp", "parallelism.replicate"})
        if (key == of_a_layout) return true;
      return std::ranges::any_of(more, [&key](const auto& setting) { return setting.first == key; });
    };
    std::ranges::copy_if(settings_, std::back_inserter(from_file),
                         [&](const config::Setting& setting) { return !is_replaced(setting.path); });
    config::Settings flags;
    std::ranges::copy_if(command_.overrides, std::back_inserter(flags),
                         [&](const config::Setting& setting) { return !is_replaced(setting.path); });
    for (const auto& [key, value] : more)
      flags.push_back({.path = key, .value = {config::RawText{value}}, .place = {.file = "", .note = "the plan"}});
    return config::load_settings(command_.file, toml_, from_file, flags);
  }

  config::Started started() const {
    return {.ranks = command_.gpus, .how = text("--gpus ", command_.gpus), .ranks_of_a_host = machine_.per_host()};
  }

  Config model_and_batch() {
    config::LoadedConfig loaded = config::load_settings(command_.file, toml_, settings_, command_.overrides);
    config::throw_if_any(loaded.violations);
    const bool has_batch = loaded.is_given("training.global_batch_size");
    const double seq_len = static_cast<double>(loaded.config.training.seq_len);
    config::derive(loaded, started());
    Config out = loaded.config;
    require<ConfigError>(out.model.num_hidden_layers > 0 && out.model.hidden_size > 0 &&
                             out.model.num_attention_heads > 0 && out.model.vocab_size > 0,
                         "no model to plan for\n  fix: a config, or --model.preset, for instance llama3-8b");
    const double tokens = command_.tokens_per_step > 0 ? command_.tokens_per_step : kDefaultTokens;
    if (!has_batch || command_.tokens_per_step > 0) out.training.global_batch_size = shareable(tokens / seq_len);
    if (!has_batch && command_.tokens_per_step == 0)
      console_.err << "note: " << thousands(std::llround(kDefaultTokens))
                   << " tokens per step, as neither --tokens-per-step nor training.global_batch_size is given\n";
    if (config::param_dtype(out) == "auto") out.model.dtype = machine_.is_cpu() ? "float32" : "bfloat16";
    return out;
  }

  /// A number of sequences that many ranks can share: within 6 %, unless the number of GPUs has large odd factors.
  std::int64_t shareable(double sequences) const {
    std::int64_t unit = command_.gpus;
    while (unit % 2 == 0) unit /= 2;
    while (static_cast<double>(unit) * 16 <= sequences) unit *= 2;
    return std::max<std::int64_t>(1, std::llround(sequences / static_cast<double>(unit))) * unit;
  }

  /// What `trireme train` checks of a layout without its machine.
  bool is_valid(const Config& config) const {
    try {
      config::LoadedConfig loaded = loaded_with(planner::settings_of(config));
      config::check_config(loaded, started());
      return true;
    } catch (const ConfigError& e) {
      refusal_ = e.what();
      return false;
    }
  }

  planner::FoundPlans only(const planner::PlanQuestion& question) const {
    const NamedLayout layout = parse_named_layout(command_.layout, "--layout");
    Config config = question.config;
    ParallelismConfig& p = config.parallelism;
    p.stages.clear();
    p.pp_schedule_file.clear();
    p.expert_tp = 0;
    p.replicate = 1;
    p.tp = layout.degree("tp");
    p.pp = layout.degree("pp");
    p.cp = layout.degree("cp");
    p.ep = layout.degree("ep");
    if (layout.keys.contains("zero")) p.zero = layout.degree("zero");
    const std::int64_t replica = p.tp * p.pp * p.cp;
    p.dp = layout.keys.contains("dp") ? layout.degree("dp") : std::max<std::int64_t>(1, command_.gpus / replica);
    require<ConfigError>(p.dp * replica == command_.gpus, "--layout ", command_.layout, ": ", p.dp * replica,
                         " ranks, --gpus ", command_.gpus);
    config::LoadedConfig given = config::load_settings(command_.file, toml_, settings_, command_.overrides);
    TrainingConfig& t = config.training;
    t.micro_batch_size = std::max<std::int64_t>(1, given.config.training.micro_batch_size);
    require<ConfigError>(t.global_batch_size % (p.dp * t.micro_batch_size) == 0, "--layout ", command_.layout,
                         ": the global batch of ", t.global_batch_size,
                         " is not a multiple of dp x micro_batch_size = ", p.dp * t.micro_batch_size,
                         "\n  fix: --tokens-per-step, or --training.micro_batch_size");
    t.grad_accum = t.global_batch_size / (p.dp * t.micro_batch_size);
    config::LoadedConfig loaded = loaded_with(planner::settings_of(config));
    config::check_config(loaded, started());  // says what is wrong with it
    return {.plans = {planner::predict_plan(config, machine_, question.software)}, .layouts = 1};
  }

  void print(const planner::PlanQuestion& question, const planner::FoundPlans& found) const {
    const Config& c = question.config;
    console_.out << "model        " << human_count(static_cast<double>(config::count_parameters(c.model).total()))
                 << " parameters, sequences of " << thousands(c.training.seq_len) << " tokens, "
                 << thousands(c.training.seq_len * c.training.global_batch_size) << " tokens per step\n"
                 << "machine      " << machine_.gpus << " x " << machine_.gpu.name << ", " << machine_.per_host()
                 << " per host, " << giga(machine_.gpu.network_bandwidth) << " GB/s per GPU to other hosts\n"
                 << "compared     " << thousands(found.layouts) << (found.layouts == 1 ? " layout" : " layouts")
                 << (found.too_large > 0 ? text(", ", thousands(found.too_large), " faster ones do not fit") : "")
                 << "\n\n";
    if (found.plans.empty()) return;
    std::vector<TableRow> rows;
    for (const Plan& plan : found.plans) {
      const double exposed = plan.time.communication() / plan.time.total();
      rows.push_back({planner::layout_text(plan.config), human_count(plan.tokens_per_second / machine_.gpus),
                      percent(plan.mfu), human_seconds(plan.time.total()), human_bytes(plan.memory_bytes),
                      percent(plan.time.bubble / plan.time.total()), percent(exposed)});
    }
    console_.out << table({"layout", "tok/s per GPU", "MFU", "step", "memory", "bubble", "communication"}, rows)
                 << "\n";
    const Plan& best = found.plans.front();
    for (std::size_t i = 1; i < found.plans.size(); ++i)
      console_.out << (i == 1 ? "slower       " : "             ") << i + 1 << ": "
                   << planner::why_slower(found.plans[i], best) << "\n";
    console_.out << "step         ";
    bool first = true;
    for (const auto& [name, seconds] : best.time.parts()) {
      if (seconds < 0.005 * best.time.total()) continue;
      console_.out << (first ? "" : " · ") << name << " " << human_seconds(seconds);
      first = false;
    }
    console_.out << "\nmemory       " << planner::describe(best.memory) << " · process "
                 << human_bytes(best.memory_bytes - best.memory.total()) << "\n";
    print_duration(best, c);
    print_goodput(best);
  }

  /// Steps wait while a checkpoint is copied to host memory; it is written in the background.
  planner::Goodput goodput_of(const Plan& best) const {
    const double state = best.memory.weights + best.memory.master + best.memory.states;
    return planner::goodput_of({.gpus = machine_.gpus,
                                .hours_between_failures = command_.mtbf_hours,
                                .blocked_s = state / kHostCopyBandwidth});
  }

  void print_goodput(const Plan& best) const {
    const planner::Goodput goodput = goodput_of(best);
    console_.out << "failures     one every " << duration_text(goodput.failure_every_s) << ": a checkpoint every "
                 << duration_text(goodput.interval_s) << " leaves " << percent(goodput.part)
                 << " of the time for steps\n";
  }

  void print_duration(const Plan& best, const Config& c) const {
    double tokens = command_.tokens;
    std::string of = "";
    if (tokens == 0) {
      tokens = static_cast<double>(c.training.steps) *
               static_cast<double>(c.training.seq_len * c.training.global_batch_size);
      of = text(" (training.steps = ", c.training.steps, ")");
    }
    const double days = tokens / best.tokens_per_second / 86400 / goodput_of(best).part;
    console_.out << "training     " << human_count(tokens) << " tokens" << of << ": " << duration_text(86400 * days)
                 << ", " << human_count(std::max(1.0, days * 24 * machine_.gpus)) << " GPU hours\n";
  }

  void print_json(const planner::PlanQuestion& question, const planner::FoundPlans& found) const {
    std::ostream& out = console_.out;
    out << "{\"gpus\": " << machine_.gpus << ", \"gpu\": " << json_string(machine_.gpu.name)
        << ", \"tokens_per_step\": " << question.config.training.seq_len * question.config.training.global_batch_size
        << ", \"layouts\": " << found.layouts << ", \"plans\": [";
    for (std::size_t i = 0; i < found.plans.size(); ++i) {
      const Plan& plan = found.plans[i];
      out << (i == 0 ? "" : ", ") << "{\"layout\": " << json_string(planner::layout_text(plan.config))
          << ", \"settings\": {";
      bool first = true;
      for (const auto& [key, value] : planner::settings_of(plan.config)) {
        out << (first ? "" : ", ") << json_string(key) << ": " << json_string(value);
        first = false;
      }
      out << "}, \"step_seconds\": " << json_number(plan.time.total())
          << ", \"tokens_per_second\": " << json_number(plan.tokens_per_second)
          << ", \"mfu\": " << json_number(plan.mfu) << ", \"memory_bytes\": " << json_number(plan.memory_bytes)
          << ", \"seconds\": {";
      first = true;
      for (const auto& [name, seconds] : plan.time.parts()) {
        out << (first ? "" : ", ") << json_string(name) << ": " << json_number(seconds);
        first = false;
      }
      out << "}}";
    }
    out << "]}\n";
  }

  [[noreturn]] void throw_none_fits(const planner::PlanQuestion& question, const planner::FoundPlans& found) const {
    if (found.layouts == 0)
      throw ConfigError(text("plan: no layout of ", command_.gpus, " GPUs can share ",
                             question.config.training.global_batch_size, " sequences: dp must divide them\n",
                             "  fix: --tokens-per-step instead of training.global_batch_size, or another --gpus"));
    if (!refusal_.empty())
      throw ConfigError("plan: the layouts that fit are refused, one of them because of\n" + refusal_);
    throw ConfigError(text("plan: none of ", thousands(found.layouts), " layouts fits into ",
                           human_bytes(question.memory_bytes), " per GPU\n  fix: more GPUs, GPUs with more memory",
                           ", or a larger --tokens-per-step, which more ranks of dp can share"));
  }

  void write_best(const Plan& best) const {
    std::vector<std::pair<std::string, std::string>> more = planner::settings_of(best.config);
    config::LoadedConfig loaded = loaded_with(more);
    config::check_config(loaded, started());
    write_config(command_.output, config::to_toml(loaded), console_);
  }

  const PlanCommand& command_;
  Console& console_;
  planner::Machine machine_;
  planner::Software software_;
  std::string toml_;
  config::Settings settings_;
  mutable std::string refusal_;  // of a layout that fits
};

}  // namespace

ExitCode run_plan(const PlanCommand& command, Console& console) {
  if (!command.output.empty()) require_no_file(command.output);
  Planning(command, console).run();
  return ExitCode::done;
}

}  // namespace trireme::cli
