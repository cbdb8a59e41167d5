#include "trireme/config/schema/config.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iomanip>
#include <iterator>
#include <sstream>

#include "trireme/base/human.hpp"
#include "trireme/base/name_pattern.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/read/show.hpp"
#include "trireme/config/rules/training_rules.hpp"
#include "trireme/config/rules/validate.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/schema/lr_factor.hpp"
#include "trireme/config/schema/lr_schedule.hpp"
#include "trireme/config/settings/toml_file.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/metrics/run_folder.hpp"
#include "trireme/planner/search.hpp"

namespace trireme::cli {
namespace {

constexpr int kMaxDrawnRanks = 64;

config::Started started(const ConfigOptions& options) {
  require<ConfigError>(options.ranks >= 0, "-n ", options.ranks, ": must be at least 1");
  return {.ranks = options.ranks,
          .how = options.ranks > 0 ? text("-n ", options.ranks) : "",
          .ranks_of_a_host = options.ranks};
}

void print_warnings(const std::vector<std::string>& warnings, Console& console) {
  for (const std::string& warning : warnings) console.err << "warning: " << warning << "\n";
}

std::string group_list(const Grid& grid, Axis axis) {
  std::string out = name(axis);
  for (const std::vector<int>& group : grid.groups({axis})) {
    std::string ranks;
    for (const int rank : group) ranks += text(ranks.empty() ? "" : ",", rank);
    out += text(" {", ranks, "}");
  }
  return out;
}

/// The grid and, if it is small, the groups along each axis that has more than one rank.
std::string describe_layout(const ParallelismConfig& p) {
  const Grid grid = config::dense_grid(p);
  std::string out = text("layout       ", grid.str(), " · ", grid.size(), grid.size() == 1 ? " rank" : " ranks",
                         p.dp < 0 ? " a replica (dp: what is left)" : "", " · zero ", p.zero, "\n");
  if (grid.size() <= kMaxDrawnRanks)
    for (const auto& [axis, degree] : grid.axes())
      if (degree > 1) out += text("             ", group_list(grid, axis), "\n");
  return out;
}

std::string describe_batch(const Config& c) {
  const TrainingConfig& t = c.training;
  const std::int64_t dp = std::max<std::int64_t>(1, c.parallelism.dp);
  const std::int64_t tokens = t.global_batch_size * t.seq_len;
  return text("batch        ", t.micro_batch_size, " sequences × ", thousands(t.seq_len), " tokens × ", t.grad_accum,
              t.grad_accum == 1 ? " microbatch" : " microbatches", " × dp ", dp, " = ", thousands(tokens),
              " tokens a step · ", thousands(t.steps), t.steps == 1 ? " step = " : " steps = ",
              human_count(static_cast<double>(tokens) * static_cast<double>(t.steps)), " tokens\n");
}

/// On the GPU of --gpu.
std::string predicted_speed(const Config& c, const ConfigOptions& options) {
  if (options.gpu.empty() || config::family_of(c.model).is_registered()) return "";
  const planner::Machine machine{planner::gpu_named(options.gpu), config::dense_grid(c.parallelism).size()};
  const planner::Plan plan = planner::predict_plan(c, machine, planner::software_named("trireme"));
  return text("predicted    ", planner::prediction_text(plan, machine), " (", machine.gpus, " x ", machine.gpu.name,
              ")\n");
}

/// "200": the first 200 steps; "1000:1200": those.
std::pair<std::int64_t, std::int64_t> step_range(const std::string& words) {
  const auto number = [&](std::string_view word) {
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), step);
    require<ConfigError>(error == std::errc() && end == word.data() + word.size() && step >= 1, "--rates ", words,
                         ": a number of steps, or FIRST:LAST, from 1");
    return step;
  };
  const std::size_t colon = words.find(':');
  if (colon == std::string::npos) return {1, number(words)};
  return {number(std::string_view(words).substr(0, colon)), number(std::string_view(words).substr(colon + 1))};
}

/// The learning rates of some steps, one a line.
/// For people: 3e-05 instead of 2.9999999999999997e-05.
double without_noise(double x) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.12g", x);
  return std::strtod(digits, nullptr);
}

void print_rates(const Config& c, const std::string& which, bool json, std::ostream& out) {
  const LrSchedule lr(lr_options(c));
  const auto [first, last] = step_range(which);
  if (!json) out << "step  learning rate\n";
  for (std::int64_t step = first; step <= std::min(last, c.training.steps); ++step) {
    double rate = lr(step);
    if (json) {
      out << "{\"step\": " << step << ", \"lr\": " << config::toml_text(&rate) << "}\n";
      continue;
    }
    double shown = without_noise(rate);
    out << std::setw(4) << step << "  " << config::toml_text(&shown) << "\n";
  }
}

/// The parameters of the model, one a line, and how they are trained.
void print_parameters(const Config& c, bool json, std::ostream& out) {
  require<ConfigError>(c.model.num_hidden_layers > 0, "no model to list the parameters of\n  fix: set model.preset, ",
                       "for instance --model.preset tiny-llama");
  const std::vector<NamePattern> without = name_patterns(c.optimizer.no_decay);
  const std::vector<NamePattern> frozen = name_patterns(c.optimizer.frozen);
  for (const std::string& name : parameter_names(c.model)) {
    const bool is_frozen = matches_any(frozen, name);
    const bool decays = !is_frozen && c.optimizer.weight_decay > 0 && !matches_any(without, name);
    double factor = is_frozen ? 0 : config::lr_factor_of(name, c.optimizer.lr_factors);
    if (json)
      out << "{\"name\": \"" << name << "\", \"decay\": " << (decays ? "true" : "false")
          << ", \"lr_factor\": " << config::toml_text(&factor) << "}\n";
    else
      out << (is_frozen ? "frozen    "
              : decays  ? "decay     "
                        : "no decay  ")
          << name << (is_frozen || factor == 1 ? "" : text("  (learning rate x ", factor, ")")) << "\n";
  }
}

}  // namespace

ExitCode run_config_show(const ConfigOptions& options, Console& console) {
  config::LoadedConfig loaded = config::load_config(options.file, options.overrides);
  config::throw_if_any(loaded.violations);
  // A config without a model can still be shown, so violated cross-key rules are only warnings here.
  config::derive(loaded, started(options));
  std::vector<std::string> warnings;
  const std::vector<config::Violation> violations = config::validate(loaded, started(options), warnings);
  if (!options.rates.empty()) print_rates(loaded.config, options.rates, options.json, console.out);
  if (options.parameters) print_parameters(loaded.config, options.json, console.out);
  if (!options.rates.empty() || options.parameters) {
    print_warnings(warnings, console);
    return ExitCode::done;
  }
  for (const config::Violation& v : violations) warnings.push_back(v.headline);
  if (options.json) {
    console.out << config::show_json(loaded);
    print_warnings(warnings, console);
    return ExitCode::done;
  }
  console.out << config::show(loaded, options.explained);
  const std::string model = config::describe_model(loaded);
  if (!model.empty()) {
    console.out << "\n# ---\n";
    std::string line;
    for (std::istringstream lines(model); std::getline(lines, line);) console.out << "# " << line << "\n";
  }
  print_warnings(warnings, console);
  return ExitCode::done;
}

ExitCode run_config_check(const ConfigOptions& options, Console& console) {
  // Read once: a pipe cannot be read again by the program that looks at files.
  const std::string toml = config::read_config_file(options.config_copy.empty() ? options.file : options.config_copy);
  config::LoadedConfig loaded =
      config::load_settings(options.file, toml, config::parse_toml(options.file, toml), options.overrides);
  std::vector<std::string> warnings = config::check_config(loaded, started(options));
  const std::vector<config::Violation> refused = config::validate_for_training(loaded);
  metrics::run_name(loaded.config.run.name, {.time = std::chrono::system_clock::now(), .job_id = "", .layout = "dp1"});
  std::string machine;
  if (options.no_files) {
    for (const config::Violation& v : refused) warnings.push_back("trireme train would refuse it: " + v.headline);
  } else {
    config::throw_if_any(refused);
    std::ranges::move(config::training_notes(loaded), std::back_inserter(warnings));
    machine = check_training({loaded.config, toml, options.ranks, options.words}, warnings);
  }
  print_warnings(warnings, console);
  console.out << config::describe_model(loaded) << describe_layout(loaded.config.parallelism)
              << describe_batch(loaded.config) << predicted_speed(loaded.config, options) << machine;
  console.out << "ok           " << options.file << " is valid"
              << (options.no_files ? "; token files were not checked\n" : ", and can be trained\n");
  return ExitCode::done;
}

}  // namespace trireme::cli
