// The options of `trireme train`, `trireme launch` and `trireme report`.
#include <map>
#include <memory>

#include <CLI/CLI.hpp>

#include "trireme/base/error.hpp"
#include "trireme/cli/command_choice.hpp"

namespace trireme::cli {
namespace {

constexpr const char* kRestartsHelp =
    "restart the ranks at most N times, when one is killed or exits with 70, 71 or 72; gives up after 3 restarts "
    "without a new checkpoint";

}  // namespace

void add_train(CLI::App& app, Choice& choice) {
  auto options = std::make_shared<TrainCommand>();
  CLI::App* cmd = app.add_subcommand("train", "Train the model of a config, on N local ranks or as one rank of many");
  cmd->add_option("config", options->file, "config file")->required();
  const CLI::Option* ranks = cmd->add_option(
      "-n,--ranks", options->ranks, "start N ranks on this host; default: the ranks of torchrun, srun or mpirun");
  cmd->add_option("--master", options->master, "HOST:PORT of the rendezvous, if no launcher sets it");
  cmd->add_option("--max-restarts", options->max_restarts, kRestartsHelp)->capture_default_str();
  auto resume = std::make_shared<std::string>();
  cmd->add_option("--resume", *resume,
                  "a checkpoint or the folder of a run to resume from; or never. Default: auto, the newest stopped run "
                  "of this config");
  auto words = std::make_shared<std::map<std::string, std::string>>();  // short words for keys
  cmd->add_option("--console", (*words)["metrics.console"], "auto, bar, plain, json or quiet");
  cmd->add_option("-o,--output", (*words)["run.dir"], "folder of runs");
  cmd->add_flag(
      "--dry-run", options->dry_run,
      "check everything, run one step on one rank alone, show the first batch as text; no ranks are started and "
      "nothing is written");
  cmd->add_flag("--requeue", options->requeue,
                "SIGUSR1 saves and exits with 75, as SIGTERM does; default: saves and continues");
  cmd->add_option("--run-folder", options->run_folder, "")->group("");
  cmd->add_option("--config-copy", options->config_copy, "")->group("");
  cmd->add_option("--terminal-width", options->terminal_width, "")->group("");
  cmd->add_flag("--terminal-color", options->terminal_color, "")->group("");
  cmd->footer(
      "Any key can be set: --section.key VALUE. The run's folder is runs/NAME, and runs/latest points to it.\n"
      "Ctrl-C finishes the step, saves a checkpoint and exits with 130; SIGTERM and SIGHUP do the same and exit with "
      "75; Ctrl-C again, a second later, stops at once. SIGUSR1 saves and continues; SIGUSR2 writes the last calls of "
      "each rank to hang/ and continues.\n\n"
      "Example:\n  trireme train examples/tiny.toml -n 4 --training.steps 50");
  cmd->callback([options, ranks, resume, words, &choice] {
    require<ConfigError>(ranks->count() == 0 || options->ranks >= 1, "-n ", options->ranks, ": must be at least 1");
    options->overrides = choice.words.overrides;
    (*words)["checkpoint.resume"] = *resume;
    for (const auto& [key, value] : *words)
      if (!value.empty())
        options->overrides.push_back(
            {.path = key, .value = {value}, .place = {.file = "", .note = text(key, " ", value)}});
    options->words = choice.words.all;
    options->version = "trireme " TRIREME_VERSION;
    choice.output_is_optional = true;
    choice.run = [options](Console& console) { return run_train(*options, console); };
  });
}

void add_launch(CLI::App& app, Choice& choice) {
  auto options = std::make_shared<LaunchCommand>();
  CLI::App* cmd = app.add_subcommand(
      "launch",
      "Start a program as ranks, watch them, and stop all when one fails:\ntrireme launch -n N PROGRAM ARGUMENTS");
  cmd->add_option("-n,--ranks", options->ranks, "ranks on this host; with --hostfile: on each host without slots=");
  cmd->add_option("--nnodes", options->num_nodes, "number of hosts; run this command on each of them")
      ->capture_default_str();
  cmd->add_option("--node-rank", options->node_rank, "index of this host, from 0; node 0 hosts the store")
      ->capture_default_str();
  cmd->add_option(
      "--master", options->master,
      "HOST:PORT of node 0; default: a free port of this host. TRIREME_SECRET, on all nodes, limits who may join");
  cmd->add_option("--hostfile", options->hostfile,
                  "start the ranks on these hosts from here: lines `worker-1 slots=4`");
  cmd->add_option("--ssh", options->ssh, "how to run a command on a host, with --hostfile")->capture_default_str();
  cmd->add_option("--logs", options->logs, "folder for the output of each rank; default: a new one under runs/");
  cmd->add_option("--threads", options->threads, "threads per rank; default: OMP_NUM_THREADS, else cores / ranks");
  cmd->add_option("--max-restarts", options->max_restarts, kRestartsHelp)->capture_default_str();
  cmd->add_option("--attempt", options->attempt, "")->group("");
  cmd->add_option("--world-size", options->world_size, "")->group("");
  cmd->add_option("--first-rank", options->first_rank, "")->group("");
  cmd->add_flag("--control-stdin", options->control_stdin, "")->group("");
  cmd->footer(
      "Rank 0's output is shown; the output of each rank is in its file rNNNN.log. The exit code is that of the first "
      "rank that fails (71: killed, 72: hung or mismatched calls).\n\nExample:\n  trireme launch -n 4 ./my_program "
      "--steps "
      "10");
  cmd->callback([options, &choice] {
    options->program = choice.program;
    options->words = choice.words.all;
    choice.run = [options](Console& console) { return run_launch(*options, console); };
  });
}

void add_report(CLI::App& app, Choice& choice) {
  auto options = std::make_shared<ReportOptions>();
  options->version = "trireme " TRIREME_VERSION;
  CLI::App* cmd = app.add_subcommand("report", "Write a report of a run as one HTML page; several runs are compared");
  cmd->add_option("run", options->runs, "folder of a run, such as runs/latest; up to eight")->required();
  cmd->add_option("-o,--output", options->output, "file to write; default: report.html in the (first) run");
  cmd->add_option("--timeline", options->timeline, "write the traced steps (profiler.steps) as an SVG drawing instead");
  cmd->add_flag("--watch", options->watch, "update it while the run continues, until it ends or Ctrl-C");
  cmd->add_option("--interval", options->interval_s, "with --watch: seconds between updates")->capture_default_str();
  cmd->add_flag("--open", options->open, "show it in a browser (xdg-open)");
  cmd->footer(
      "Reads only files of the run, so it works while a run continues, and after it has ended or crashed. Memory, "
      "pipeline and overlap need a traced step: --profiler.steps 20 in trireme train.\n\n"
      "Example:\n  trireme report runs/latest\n  trireme report runs/a runs/b -o compared.html");
  cmd->callback([options, &choice] {
    choice.run = [options](Console& console) { return number(run_report(*options, console)); };
  });
}

}  // namespace trireme::cli
