// `trireme train CONFIG -n N`
#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>

#include <unistd.h>

#include "trireme/base/cgroup_facts.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/patient_output.hpp"
#include "trireme/base/process_limits.hpp"
#include "trireme/base/process_start.hpp"
#include "trireme/base/shell_word.hpp"
#include "trireme/base/stop_signals.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/comm/group_text.hpp"
#include "trireme/config/read/show.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/config/settings/toml_file.hpp"
#include "trireme/metrics/events_file.hpp"
#include "trireme/metrics/run_folder.hpp"
#include "trireme/metrics/status_line.hpp"
#include "trireme/metrics/train_console.hpp"
#include "trireme/planner/memory.hpp"
#include "trireme/runtime/memory/device_snapshot.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/runtime/rank/out_of_memory.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/runtime/rank/rank_main.hpp"
#include "trireme/train/run/choose_run.hpp"
#include "trireme/train/run/run_header.hpp"
#include "trireme/train/run/trainer.hpp"
#include "trireme/train/setup/checked_config.hpp"
#include "trireme/train/setup/component_options.hpp"
#include "trireme/train/setup/dtypes.hpp"
#include "trireme/train/setup/memory_check.hpp"
#include "trireme/train/setup/rank_setup.hpp"
#include "trireme/verify/dry_run.hpp"

namespace trireme::cli {
namespace {

config::LoadedConfig config_of(const TrainCommand& command, const config::Started& started,
                               std::vector<std::string>& warnings) {
  return checked_config(command.file, command.config_text, command.overrides, started, warnings);
}

std::string job_id(const Variables& variables) {
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"})
    if (const auto found = variables.find(name); found != variables.end()) return found->second;
  return "";
}

/// Errors of these kinds say all there is to know: whoever reads them does not need the logs of the ranks.
bool is_told_in_full(int code) {
  return code != static_cast<int>(ExitCode::internal) && code != static_cast<int>(ExitCode::peer_lost) &&
         code != static_cast<int>(ExitCode::hang_or_mismatch);
}

/// What all attempts of the launcher of this rank have in common, and no other start has; empty: not known.
std::string start_of(const Environment& env, const Variables& variables) {
  if (env.launcher == "trireme launch") return value_of(variables, "TRIREME_START_ID");
  if (env.launcher != "torchrun") return "";
  const std::string since = process_start_ticks(::getppid());  // the agent, which outlives its ranks
  return since.empty() ? "" : text("torchrun ", ::getppid(), " ", since, " ", env.master_addr, ":", env.master_port);
}

/// The folder of the run, or that it is complete. `start`, `attempt`: see RunRequest.
ChosenRun run_of(const Config& config, const Variables& variables, std::ostream& err, const std::string& start = "",
                 int attempt = 0) {
  const Grid grid = config::dense_grid(config.parallelism);
  remove_unfinished_of_runs(config.run.dir);
  const KeyValues given = fingerprint_of_config(config);
  const ChosenRun chosen = choose_run({.config = config,
                                       .given = given,
                                       .facts = {.time = std::chrono::system_clock::now(),
                                                 .job_id = job_id(variables),
                                                 .layout = metrics::layout_word(grid.axes())},
                                       .start = start,
                                       .attempt = attempt});
  for (const std::string& note : chosen.notes) err << "note: " << note << std::endl;
  return chosen;
}

std::uintmax_t size_of_records(const std::filesystem::path& run) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(run / "metrics.jsonl", error);
  return error ? 0 : size;
}

/// ranks/, or the first of ranks-2/, ranks-3/ ... that is not there: a run that goes on keeps its old logs.
std::filesystem::path free_log_folder(const std::filesystem::path& run) {
  std::filesystem::path folder = run / "ranks";
  for (int i = 2; std::filesystem::exists(folder); ++i) folder = run / text("ranks-", i);
  return folder;
}

/// The command line as a person would type it again, without what a launcher adds for its ranks.
std::string typed_command(const std::vector<std::string>& words) {
  std::string out = "trireme";
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--terminal-color") continue;
    if (words[i] == "--run-folder" || words[i] == "--config-copy" || words[i] == "--terminal-width")
      ++i;  // and its value
    else
      out += " " + shell_word(words[i]);
  }
  return out;
}

/// For events.jsonl: how this rank, or the whole job, ended. A run that has left no folder has no events.
void note_end(const std::filesystem::path& run, const char* event, int rank, int code, const std::string& why = "") {
  std::error_code error;
  if (!std::filesystem::exists(run / metrics::kEventsName, error)) return;
  if (why.empty())
    metrics::add_event(run, event, {{"rank", rank}, {"code", code}});
  else
    metrics::add_event(run, event, {{"rank", rank}, {"code", code}, {"error", why}});
}

int train_as_rank(const TrainCommand& command, const Environment& env, const Variables& variables, Console& console) {
  // Our own launcher reads the output of its ranks, whoever reads its own. Others may not: no training waits for that.
  std::optional<PatientOutput> patient_out, patient_err;
  if (env.launcher != "trireme launch" && &console.out == &std::cout && &console.err == &std::cerr) {
    patient_out.emplace(std::cout, STDOUT_FILENO);
    patient_err.emplace(std::cerr, STDERR_FILENO);
  }
  std::vector<std::string> warnings;
  config::LoadedConfig loaded =
      config_of(command, {.ranks = env.world_size, .how = env.how, .ranks_of_a_host = env.local_world_size}, warnings);
  Config& config = loaded.config;
  TrainIo io{.out = console.out,
             .terminal = console.terminal,
             .program = command.version,
             .command = typed_command(command.words)};
  io.late_results = !value_of(variables, "TRIREME_TEST_LATE_RESULTS").empty();
  if (env.launcher != "alone") io.terminal = {};  // Open MPI gives ranks pseudo-terminals, whatever its own output is
  if (command.terminal_width > 0)
    io.terminal = {.tty = true, .width = command.terminal_width, .color = command.terminal_color};
  io.warnings = warnings;
  io.config_text = config::to_toml(loaded);
  io.folder = command.run_folder;
  const auto warn = [&io](const std::string& warning) {
    if (!warning.empty()) io.warnings.push_back(warning);
  };
  ContextOptions options = context_options(config.comm);
  options.fingerprint = fingerprint_of_config(config);
  if (!command.run_folder.empty()) options.comm.hang_folder = (io.folder / "ranks" / "hang").string();

  const bool bar = metrics::console_mode(config.metrics.console) == metrics::ConsoleMode::bar;
  metrics::StatusLine status(io.out, bar && env.rank == 0 && io.terminal.tty, io.terminal.width);
  io.status = [&status](const std::string& what) { what.empty() ? status.erase() : status.show("  " + what + " ..."); };
  if (env.world_size > 1) io.status(text("connecting ", env.world_size, " ranks"));
  // On CPUs before anything is allocated; a GPU's free memory is known only to the process that uses it.
  const at::Device cpu(at::kCPU);
  const bool gpu = visible_gpus() > 0;
  if (!gpu) warn(check_memory(config, memory_budget(cpu, env.local_world_size), cpu));
  ParallelContext context(parallel_sizes(config), env, variables, options);
  const MemoryBudget budget = memory_budget(context.device(), env.local_world_size);
  if (gpu) warn(check_memory(config, budget, context.device()));
  const ProcessSetup process(process_options(config, context, variables));
  metrics::RunFolder own_folder;  // made by this rank
  std::string complete;
  if (io.folder.empty()) {
    if (env.rank == 0) {
      const StopSignals::Hold until_it_can_be_removed;
      const ChosenRun chosen = run_of(config, variables, console.err, start_of(env, variables), env.attempt);
      own_folder = chosen.folder;
      complete = chosen.complete;
      if (own_folder.is_new) {
        StopSignals::remove_when_leaving(own_folder.path);
        for (const char* name : {"metrics.jsonl", metrics::kStartName})
          StopSignals::remove_when_leaving(own_folder.path / name);
      }
    }
    io.folder = broadcast_text(context.world().control(), own_folder.path.string());
  } else if (env.attempt > 0 && env.rank == 0) {  // the attempt before may have failed after its last checkpoint
    complete = complete_text(io.folder, config, config.training.steps);
  }
  complete = broadcast_text(context.world().control(), complete);
  if (!complete.empty()) {
    if (env.rank == 0) console.out << complete << std::endl;
    return static_cast<int>(ExitCode::done);
  }
  io.stop_asked = StopSignals::asked;
  io.save_asked = StopSignals::save_asked;
  const auto end = [&](ExitCode code, const std::string& why) {
    note_end(io.folder, "error", env.rank, static_cast<int>(code), why);
    const bool removes = !own_folder.path.empty() && is_told_in_full(static_cast<int>(code));
    if (removes) metrics::remove_if_nothing_was_done(own_folder);
  };
  const auto snapshot = [&]() -> std::string {
    if (!context.device().is_cuda() || config.profiler.memory_snapshot == "never") return "";
    const std::filesystem::path file = io.folder / "memory" / text("rank", env.rank, ".pickle");
    return write_device_snapshot(file) ? text("\n  snapshot: ", file.string(), " (open in pytorch.org/memory_viz)")
                                       : "";
  };
  const auto out_of_memory = [&](const std::string& what) {
    const Tag tag = context.world().recorder().tag();
    return text("out of memory: rank ", env.rank, " of ", env.world_size, " could not allocate ", what, " ",
                tag.step < 0 ? "while the model was built" : text("in ", tag.str()),
                memory_advice(config, budget, context.device()), snapshot());
  };
  try {
    const LibraryExit library([&] {
      const std::string what = out_of_memory("memory or a thread for BLAS or OpenMP (its message is above)");
      end(ExitCode::out_of_memory, what);
      return what;
    });
    Trainer trainer(config, context, process, io);
    StopSignals::note_from_now_on();
    const int code = static_cast<int>(trainer.run());
    if (env.rank == 0) note_end(io.folder, "exit", 0, code);
    return code;
  } catch (const std::exception& e) {
    const auto* own = dynamic_cast<const Error*>(&e);
    if (const auto refused = own == nullptr ? refused_memory(e) : std::nullopt) {
      const std::string what = out_of_memory(text(amount_text(*refused), " from ", refused->by));
      end(ExitCode::out_of_memory, what);
      throw OutOfMemory(what);
    }
    if (own != nullptr) end(own->exit_code(), e.what());
    throw;
  }
}

/// Everything but training.
int run_dry(const TrainCommand& command, const Variables& variables, Console& console) {
  const bool gpu = visible_gpus() > 0;
  const at::Device device = gpu ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  const Environment env = detect_environment(variables, {}, visible_gpus());
  const int ranks = command.ranks > 0 ? command.ranks : env.world_size > 1 ? env.world_size : 0;
  std::vector<std::string> warnings;
  const Config config = training_config(command.file, command.config_text, command.overrides, ranks, &warnings);
  check_device(config, device);
  const int world_size = config::dense_grid(config.parallelism).size();
  Config resolved = config;
  resolve_dtypes(resolved, device);
  const ProcessSetup process(ProcessOptions{.threads = std::max(1, usable_cores() / std::max(1, command.ranks))});
  // As `train` does: before anything is allocated.
  const std::string tight = check_memory(config, memory_budget(device, std::max(1, command.ranks)), device);
  const DryRun result = with_memory_errors([&] { return dry_run(config, device, process); });
  RunHeader header;
  header.program = text(command.version, " · dry run of ", world_size, world_size == 1 ? " rank" : " ranks");
  header.layout = text(config::dense_grid(config.parallelism).str(), " zero=", config.parallelism.zero);
  header.data = result.data;
  const planner::MemoryPlan plan = planner::predict_memory(resolved, resolved.precision.param, gpu);
  header.memory = planner::describe(plan);
  header.output = "nothing was started or written";
  for (const auto& [label, words] : run_header_lines(resolved, header))
    console.out << label << std::string(label.size() < 8 ? 8 - label.size() : 1, ' ') << words << "\n";
  warnings.insert(warnings.end(), result.warnings.begin(), result.warnings.end());
  for (const std::string& warning : warnings) console.out << "warning: " << warning << "\n";
  if (!tight.empty()) console.out << "warning: " << tight << "\n";
  console.out << "\n";
  std::int64_t peak = 0;
  for (const DryStage& stage : result.stages) {
    peak = std::max(peak, stage.peak_bytes);
    console.out << "step    rank " << stage.rank << " alone: " << human_seconds(stage.seconds) << ", peak "
                << human_bytes(static_cast<double>(stage.peak_bytes)) << "\n";
  }
  if (peak > 0)
    console.out << "memory  predicted " << human_bytes(plan.total()) << ", measured "
                << human_bytes(static_cast<double>(peak)) << "\n";
  console.out << "first   " << config::shortened(result.first_sample, 400) << "\n";
  return 0;
}

}  // namespace

int run_train(const TrainCommand& asked, Console& console) {
  const StopSignals signals(StopSignals::Then::leave, asked.requeue ? UserSignal::stops : UserSignal::saves);
  need_descriptors(descriptors_of_rank(1), "trireme train");
  TrainCommand command = asked;
  // Once: /dev/stdin and other pipes cannot be read again, and a file may change before the ranks have started.
  command.config_text = config::read_config_file(command.config_copy.empty() ? command.file : command.config_copy);
  const Variables variables = process_variables();
  if (command.dry_run) return run_dry(command, variables, console);
  RankMain how{.words = command.words,
               .variables = variables,
               .flags = {},
               .log_folder = {},
               .quiet = true,
               .saves_on_stop = true};
  how.max_restarts = command.max_restarts;
  how.flags.local_ranks = command.ranks;
  how.flags.master = command.master;
  metrics::RunFolder made;  // here, for ranks that are to be started
  std::filesystem::path log_folder;
  std::uintmax_t records_before = 0;
  if (command.ranks > 0 && command.run_folder.empty()) {
    detect_environment(variables, how.flags, visible_gpus());  // -n under another launcher
    // Before anything starts: errors are reported once, and the ranks have a folder for their logs.
    std::vector<std::string> warnings;
    const config::LoadedConfig loaded = config_of(
        command, {.ranks = command.ranks, .how = text("-n ", command.ranks), .ranks_of_a_host = command.ranks},
        warnings);
    if (const at::Device cpu(at::kCPU); visible_gpus() == 0) {
      check_device(loaded.config, cpu);
      const MemoryBudget budget = memory_budget(cpu, command.ranks);
      check_memory(loaded.config, budget, cpu);
      how.out_of_memory_advice = memory_advice(loaded.config, budget, cpu);
    }
    const ChosenRun chosen = run_of(loaded.config, variables, console.err);
    if (!chosen.complete.empty()) {
      console.out << chosen.complete << std::endl;
      return static_cast<int>(ExitCode::done);
    }
    made = chosen.folder;
    command.run_folder = made.path.string();
    const std::filesystem::path ranks = free_log_folder(made.path), copy = ranks / "launched.toml";
    make_folder(ranks);
    replace_file(copy, command.config_text);
    how.words.insert(how.words.end(), {"--run-folder", command.run_folder, "--config-copy", copy.string()});
    if (console.terminal.tty) {  // rank 0 writes to a pipe that ends at a terminal
      how.words.insert(how.words.end(), {"--terminal-width", std::to_string(console.terminal.width)});
      if (console.terminal.color) how.words.emplace_back("--terminal-color");
    }
    how.log_folder = ranks.string();
    log_folder = ranks;
    records_before = size_of_records(made.path);
    // A start that was refused leaves nothing behind.
    how.drops_logs = [&](int code) {
      return is_told_in_full(code) &&
             (metrics::nothing_was_done(made.path) || size_of_records(made.path) == records_before);
    };
  }
  const int code =
      rank_main(how, [&](const Environment& env) { return train_as_rank(command, env, variables, console); });
  if (std::error_code error; code != 0 && how.drops_logs && how.drops_logs(code))
    std::filesystem::remove_all(log_folder, error);
  if (!made.path.empty() && code != 0 && is_told_in_full(code)) metrics::remove_if_nothing_was_done(made);
  if (!made.path.empty() && code != 0) note_end(made.path, "job end", -1, code);
  return code;
}

}  // namespace trireme::cli
