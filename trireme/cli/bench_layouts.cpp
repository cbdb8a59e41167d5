// `trireme bench CONFIG -n N --layouts dp4,tp4,dp2.tp2`: trains with each layout, and shows speed and parity.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/base/table.hpp"
#include "trireme/cli/bench.hpp"
#include "trireme/cli/named_layout.hpp"
#include "trireme/cli/run_program.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/rules/validate.hpp"
#include "trireme/metrics/bar_chart.hpp"
#include "trireme/report/run_files.hpp"

namespace trireme::cli {
namespace {

double middle(std::vector<double> values, double fraction) {
  std::erase_if(values, [](double v) { return std::isnan(v); });
  if (values.empty()) return std::nan("");
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<std::size_t>(fraction * static_cast<double>(values.size())))];
}

std::string flag_text(const config::Value& value) {
  const auto* raw = std::get_if<config::RawText>(&value.data);
  return raw != nullptr ? raw->text : config::str(value);
}

/// What rounding may change in the losses, relative: they are of many steps.
double loss_tolerance(const std::string& dtype) {
  if (dtype == "float64") return 1e-9;
  return dtype == "float32" ? 1e-3 : 3e-2;
}

struct LayoutSpeed {
  std::string name;
  std::int64_t ranks = 1;
  double tokens_per_second = 0, step_p50 = 0, step_p95 = 0;
  double exposed = 0, bubble = 0, peak_mib = 0, loss = 0;  // NaN: not measured
  double difference = 0;                                   // of a loss, relative, the largest of all steps
  bool agrees = true;
  std::string failure{};
};

class LayoutBench {
 public:
  LayoutBench(const BenchLayoutsCommand& command, Console& console) : command_(command), console_(console) {
    for (const char* size : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
      if (const char* tasks = std::getenv(size); tasks != nullptr && std::atoi(tasks) > 1)
        throw ConfigError(
            text("bench --layouts in each of ", tasks, " tasks (", size, " = ", tasks,
                 "): it starts the ranks itself\n  fix: start it once, without torchrun, srun or mpirun"));
    config::LoadedConfig loaded = config::load_config(command.file, with({{"dp", command.ranks}}));
    config::check_config(loaded, {.ranks = command.ranks, .how = text("-n ", command.ranks), .ranks_of_a_host = 0});
    config_ = loaded.config;
    require<ConfigError>(command.steps >= 1 && command.warm_up >= 0, "--steps ", command.steps, " --warm-up ",
                         command.warm_up, ": must be at least 1, and 0");
  }

  int run() {
    std::vector<NamedLayout> layouts{{.name = "1 rank", .keys = {{"dp", 1}}}};
    for (const std::string& words : command_.layouts) layouts.push_back(parse_named_layout(words, "--layouts"));
    for (const NamedLayout& layout : layouts)
      require<ConfigError>(layout.name == "1 rank" || layout.ranks() == command_.ranks, "--layouts ", layout.name, ": ",
                           layout.ranks(), " ranks, -n ", command_.ranks, "\n  fix: layouts of -n ranks");
    std::filesystem::create_directories(command_.output);
    std::vector<LayoutSpeed> rows;
    for (const NamedLayout& layout : layouts) {
      console_.err << "running " << layout.name << " ..." << std::endl;
      rows.push_back(measure(layout));
      if (rows.size() == 1)
        require<ConfigError>(rows[0].failure.empty(), "the reference, one rank, failed: ", rows[0].failure,
                             "\n  fix: what that log says; nothing can be compared without it");
    }
    print(rows);
    write(rows);
    return std::ranges::all_of(rows, [](const LayoutSpeed& r) { return r.failure.empty() && r.agrees; }) ? 0 : 1;
  }

 private:
  /// The settings of the command line, and this layout with the global batch of all ranks.
  config::Settings with(const std::map<std::string, std::int64_t>& layout) const {
    config::Settings out = command_.overrides;
    const auto set = [&](const std::string& path, std::int64_t value) {
      std::erase_if(out, [&](const config::Setting& each) { return each.path == path; });
      out.push_back({.path = path, .value = {value}, .place = {.file = "", .note = "the layout"}});
    };
    for (const char* axis : {"dp", "tp", "pp", "cp", "ep", "replicate"}) set(text("parallelism.", axis), 1);
    set("parallelism.expert_tp", 0);
    for (const auto& [key, value] : layout) set("parallelism." + key, value);
    return out;
  }

  std::vector<std::string> words_for(const NamedLayout& layout, const std::filesystem::path& runs) const {
    const TrainingConfig& t = config_.training;
    const std::int64_t dp = layout.degree("dp");
    require<ConfigError>(t.global_batch_size % dp == 0, "--layouts ", layout.name, ": the global batch of ",
                         t.global_batch_size, " samples cannot be divided among ", dp, " replicas");
    const std::int64_t micro = std::gcd(t.micro_batch_size, t.global_batch_size / dp);
    std::vector<std::string> words{"train", command_.file, "-n", std::to_string(layout.ranks())};
    const std::vector<std::string> own{"run.dir",
                                       "run.name",
                                       "training.steps",
                                       "training.micro_batch_size",
                                       "training.grad_accum",
                                       "training.global_batch_size",
                                       "checkpoint.interval",
                                       "checkpoint.resume",
                                       "checkpoint.export_hf",
                                       "metrics.tensorboard",
                                       "metrics.console",
                                       "validation.interval"};
    for (const config::Setting& setting : with(layout.keys))
      if (std::ranges::find(own, setting.path) == own.end())
        words.insert(words.end(), {"--" + setting.path, flag_text(setting.value)});
    const std::vector<std::string> values{runs.string(),
                                          folder_name(layout),
                                          std::to_string(command_.warm_up + command_.steps),
                                          std::to_string(micro),
                                          std::to_string(t.global_batch_size / dp / micro),
                                          std::to_string(t.global_batch_size),
                                          "0",
                                          "never",
                                          "false",
                                          "false",
                                          "quiet",
                                          "0"};
    for (std::size_t i = 0; i < own.size(); ++i) words.insert(words.end(), {"--" + own[i], values[i]});
    return words;
  }

  static std::string folder_name(const NamedLayout& layout) {
    return layout.name == "1 rank" ? "one-rank" : layout.name;
  }

  LayoutSpeed measure(const NamedLayout& layout) {
    const std::filesystem::path out = command_.output, runs = out / "runs", run = runs / folder_name(layout),
                                log = out / (folder_name(layout) + ".log");
    std::filesystem::remove_all(run);
    LayoutSpeed row{.name = layout.name, .ranks = layout.ranks()};
    const int code = run_own_program(words_for(layout, runs), log);
    if (code != 0) {
      row.failure = text("exit code ", code, ", see ", log.string());
      row.agrees = false;
      row.tokens_per_second = row.step_p50 = row.step_p95 = row.exposed = row.bubble = row.peak_mib = row.loss =
          row.difference = std::nan("");
      return row;
    }
    const report::Columns metrics = report::read_run(run).metrics;
    const auto timed = [&](std::string_view key) {
      std::vector<double> values = metrics[key];
      if (!values.empty())
        values.erase(values.begin(), values.begin() + std::min<std::ptrdiff_t>(command_.warm_up, std::ssize(values)));
      return values;
    };
    row.tokens_per_second = middle(timed("tokens_per_sec"), 0.5);
    row.step_p50 = middle(timed("train_time_s"), 0.5);
    row.step_p95 = middle(timed("train_time_s"), 0.95);
    row.exposed = middle(timed("comm_exposed_frac"), 0.5);
    row.bubble = middle(timed("bubble_frac"), 0.5);
    row.peak_mib = middle(metrics["mem_peak_gib"], 1) * 1024;
    const std::vector<double>& losses = metrics["loss"];
    if (reference_.empty()) reference_ = losses;
    row.loss = losses.empty() ? std::nan("") : losses.back();
    row.agrees = losses.size() == reference_.size() && !losses.empty();
    for (std::size_t i = 0; i < std::min(losses.size(), reference_.size()); ++i) {
      const double difference = std::abs(losses[i] - reference_[i]) / std::abs(reference_[i]);
      if (!(difference <= row.difference)) row.difference = difference;  // NaN stays
    }
    row.agrees &= row.difference <= loss_tolerance(config_.model.dtype);  // not if it is NaN
    return row;
  }

  void print(const std::vector<LayoutSpeed>& rows) const {
    const auto rounded = [](double value, double unit) {
      return std::isnan(value) ? std::string("–") : human_number(std::round(value / unit) * unit);
    };
    const auto percent = [&](double value) {
      return std::isnan(value) ? std::string("–") : rounded(100 * value, 0.1) + " %";
    };
    std::vector<TableRow> cells;
    for (const LayoutSpeed& row : rows) {
      if (!row.failure.empty()) {
        cells.push_back({row.name, "–", "–", "–", "–", "–", "–", "–", "–", "failed: " + row.failure});
        continue;
      }
      const double speed_up = row.tokens_per_second / rows[0].tokens_per_second;
      char difference[32];
      std::snprintf(difference, sizeof difference, "%.0e", row.difference);
      cells.push_back({row.name, human_count(row.tokens_per_second), rounded(speed_up, 0.01) + "x",
                       percent(speed_up / static_cast<double>(row.ranks)),
                       text(rounded(1e3 * row.step_p50, 0.1), " / ", rounded(1e3 * row.step_p95, 0.1)),
                       percent(row.exposed), percent(row.bubble), rounded(row.peak_mib, 1), rounded(row.loss, 1e-4),
                       &row == rows.data() ? "reference"
                                           : text(row.agrees ? "✓" : "✗ DIFFERS", " largest difference ", difference)});
    }
    console_.out << table({"layout", "tok/s", "vs 1 rank", "efficiency", "step ms p50 / p95", "comm exposed", "bubble",
                           "peak MiB", "loss", "parity"},
                          cells)
                 << "each: " << command_.warm_up << (command_.warm_up == 1 ? " warm-up step, " : " warm-up steps, ")
                 << command_.steps << " timed, fresh processes · global batch " << config_.training.global_batch_size
                 << " samples · losses of all steps compared with one rank, relative\n";
    const bool beats_its_ranks = std::ranges::any_of(rows, [&](const LayoutSpeed& row) {
      return row.failure.empty() &&
             row.tokens_per_second > 1.1 * static_cast<double>(row.ranks) * rows[0].tokens_per_second;
    });
    if (beats_its_ranks)
      console_.out
          << "note: an efficiency above 100 % is not a speed-up by more ranks: the run with one rank was slowed "
             "down, by other programs or by threads that share cores; repeat it on an idle machine\n";
  }

  void write(const std::vector<LayoutSpeed>& rows) const {
    const std::filesystem::path out = command_.output;
    std::ofstream csv(out / "layouts.csv");
    csv << "layout,ranks,tokens_per_sec,step_p50_s,step_p95_s,comm_exposed_frac,bubble_frac,peak_mib,loss,"
           "max_relative_loss_difference,agrees,failure\n";
    csv.precision(10);
    const auto number = [](double value) { return std::isnan(value) ? std::string() : json_number(value); };
    metrics::BarChart chart{.title = text("tokens per second by layout, ", command_.ranks, " ranks"), .bars = {}};
    for (const LayoutSpeed& row : rows) {
      csv << row.name << "," << row.ranks;
      for (const double figure : {row.tokens_per_second, row.step_p50, row.step_p95, row.exposed, row.bubble,
                                  row.peak_mib, row.loss, row.difference})
        csv << "," << number(figure);
      csv << "," << (row.agrees ? "true" : "false") << ",\"" << row.failure << "\"\n";
      if (row.failure.empty())
        chart.bars.push_back({row.name, row.tokens_per_second, human_count(row.tokens_per_second)});
    }
    std::ofstream(out / "layouts.svg") << metrics::draw_svg(chart);
    csv.close();
    require<ConfigError>(csv.good(), (out / "layouts.csv").string(), ": could not be written");
    console_.out << (out / "layouts.csv").string() << " and .svg\n";
  }

  const BenchLayoutsCommand& command_;
  Console& console_;
  Config config_;
  std::vector<double> reference_;  // losses of one rank
};

}  // namespace

int run_bench_layouts(const BenchLayoutsCommand& command, Console& console) {
  require<ConfigError>(!command.file.empty(),
                       "bench: no config\n  fix: trireme bench CONFIG -n N --layouts dp2,tp2, or one of ",
                       "its commands: trireme bench --help");
  require<ConfigError>(command.ranks >= 1 && !command.layouts.empty(),
                       "bench: -n N and --layouts are needed\n  fix: trireme bench ", command.file,
                       " -n 2 --layouts dp2,tp2");
  return LayoutBench(command, console).run();
}

}  // namespace trireme::cli
