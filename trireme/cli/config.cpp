#include "trireme/config/schema/config.hpp"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "trireme/base/file_output.hpp"
#include "trireme/base/human.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/config/foreign/import.hpp"
#include "trireme/config/read/show.hpp"
#include "trireme/config/read/toml_file.hpp"
#include "trireme/config/rules/validate.hpp"
#include "trireme/config/schema/dense_grid.hpp"

namespace trireme::cli {
namespace {

constexpr int kMaxDrawnRanks = 64;

config::Started started(const ConfigOptions& options) {
  require<ConfigError>(options.ranks >= 0, "-n ", options.ranks, ": a number of ranks is at least 1");
  return {.ranks = options.ranks, .how = options.ranks > 0 ? text("-n ", options.ranks) : "", .ranks_of_a_host = 0};
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
              " microbatches × dp ", dp, " = ", thousands(tokens), " tokens a step · ", thousands(t.steps),
              " steps = ", human_count(static_cast<double>(tokens) * static_cast<double>(t.steps)), " tokens\n");
}

}  // namespace

ExitCode run_config_show(const ConfigOptions& options, Console& console) {
  config::LoadedConfig loaded = config::load_config(options.file, options.overrides);
  config::throw_if_any(loaded.violations);
  // A config without a model can still be shown, so violated cross-key rules are only warnings here.
  config::derive(loaded, started(options));
  std::vector<std::string> warnings;
  for (const config::Violation& v : config::validate(loaded, started(options), warnings))
    warnings.push_back(v.headline);
  console.out << config::show(loaded);
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
  config::LoadedConfig loaded = config::load_config(options.file, options.overrides);
  print_warnings(config::check_config(loaded, started(options)), console);
  console.out << config::describe_model(loaded) << describe_layout(loaded.config.parallelism)
              << describe_batch(loaded.config);
  console.out << "ok           " << options.file << " fits together\n";
  return ExitCode::done;
}

ExitCode run_config_import(const ConfigOptions& options, Console& console) {
  require<ConfigError>(options.overrides.empty(), "config import takes no settings: ",
                       options.overrides.empty() ? "" : str(options.overrides.front().place),
                       "\n  fix: set them in the file it writes");
  const auto from = config::framework_by_name(options.from);
  require<ConfigError>(options.from.empty() || from, "--from ", options.from,
                       " is no trainer that we know\n  fix: nanotron, torchtitan, megatron, deepspeed, trainer or hf");
  // A model folder means its config.json.
  std::filesystem::path source = options.file;
  if (std::filesystem::is_directory(source)) source /= "config.json";
  const config::Imported imported =
      config::import_config(source.string(), config::read_config_file(source.string()), from);
  for (const std::string& note : imported.notes) console.err << "not translated: " << note << "\n";
  const std::string toml = text("# from ", options.file, " (", name(imported.from), ")\n", imported.toml);
  if (options.output.empty()) {
    console.out << toml;
    return ExitCode::done;
  }
  replace_file(options.output, toml);
  console.out << "written to " << options.output << "\n";
  return ExitCode::done;
}

}  // namespace trireme::cli
