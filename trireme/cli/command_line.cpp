#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <sstream>

#include <CLI/CLI.hpp>

#include "trireme/base/process_limits.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/cli/bench.hpp"
#include "trireme/cli/build_facts.hpp"
#include "trireme/cli/checkpoint.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/cli/completion.hpp"
#include "trireme/cli/data.hpp"
#include "trireme/cli/model_options.hpp"
#include "trireme/config/read/flags.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/schema/presets.hpp"
#include "trireme/config/settings/nearest.hpp"

namespace trireme::cli {
namespace {

/// The parsed command. Settings (--section.key VALUE) are removed before CLI11 sees the rest: their names are those of
/// the config, which checks them.
struct Choice {
  std::function<int(Console&)> run;  // returns the exit code
  bool output_is_optional = false;   // whether it has done its work even if its output could not be written
  CommandWords words;
  std::vector<std::string> program;  // arguments after --
};

int number(ExitCode code) { return static_cast<int>(code); }

void add_schedule(CLI::App& app, Choice& choice) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* cmd = app.add_subcommand("schedule", "Draw a pipeline schedule, check it, and show its cost");
  CLI::Option* name = cmd->add_option("name", options->name, "afab, 1f1b, interleaved-1f1b, zb1p, zbv or dualpipe-v");
  cmd->add_option("--file", options->file, "instead of a name: a schedule file, in the format of --text")
      ->excludes(name);
  cmd->add_option("--stages", options->stages, "pipeline ranks")->capture_default_str();
  cmd->add_option("--microbatches", options->microbatches, "microbatches per step")->capture_default_str();
  cmd->add_option("--virtual-stages", options->virtual_stages, "chunks per rank, for interleaved-1f1b; default: 2");
  cmd->add_option("--forward", options->costs.F, "time of a stage's forward")->capture_default_str();
  cmd->add_option("--input-grad", options->costs.I, "time of its input gradient")->capture_default_str();
  cmd->add_option("--weight-grad", options->costs.W, "time of its weight gradient")->capture_default_str();
  cmd->add_option("--transfer", options->costs.transfer, "time from one rank to the next")->capture_default_str();
  cmd->add_option("--svg", options->svg, "write a drawing to this file");
  cmd->add_flag("--text", options->print_text, "print the steps as text, one line per rank");
  cmd->footer(
      "Example:\n  trireme schedule 1f1b --stages 4 --microbatches 8\n  trireme schedule zb1p --text > mine.txt\n"
      "  trireme schedule --file mine.txt");
  cmd->callback([options, &choice] {
    choice.run = [options](Console& console) { return number(run_schedule(*options, console)); };
  });
}

using ConfigRun = ExitCode (*)(const ConfigOptions&, Console&);

CLI::App* add_config_command(CLI::App& parent, Choice& choice, const char* name, const char* what, ConfigRun run,
                             const std::shared_ptr<ConfigOptions>& options) {
  CLI::App* cmd = parent.add_subcommand(name, what);
  cmd->callback([options, run, &choice] {
    choice.run = [options, run, &choice](Console& console) {
      options->overrides = choice.words.overrides;
      options->words = choice.words.all;
      return number(run(*options, console));
    };
  });
  return cmd;
}

void add_config_help(CLI::App& config, Choice& choice) {
  auto explain = std::make_shared<ConfigExplainOptions>();
  CLI::App* cmd =
      config.add_subcommand("explain", "Explain a key: meaning, type, unit, limits, choices and other names");
  cmd->add_option("key", explain->key,
                  "a key, its last part, a section, or another trainer's name; default: every key");
  cmd->add_flag("--markdown", explain->markdown, "every key, as the reference in docs/config.md");
  cmd->footer("Example:\n  trireme config explain lr_scheduler.decay");
  cmd->callback([explain, &choice] {
    choice.run = [explain](Console& console) { return number(run_config_explain(*explain, console)); };
  });

  auto fresh = std::make_shared<ConfigNewOptions>();
  cmd = config.add_subcommand("new", "Create a commented starter config");
  cmd->add_option("--preset", fresh->preset, "a model by name (trireme config show --help lists them)");
  cmd->add_option("--hf", fresh->hf, "a Hugging Face folder: its model, weights and tokenizer");
  cmd->add_option("-o,--output", fresh->output, "new file to write; default: standard output");
  cmd->footer("Example:\n  trireme config new --preset llama3-8b -o run.toml");
  cmd->callback(
      [fresh, &choice] { choice.run = [fresh](Console& console) { return number(run_config_new(*fresh, console)); }; });
}

void add_config(CLI::App& app, Choice& choice) {
  CLI::App* config = app.add_subcommand("config", "Show, check, translate, explain or create a config");
  config->require_subcommand(1);
  const char* settings = "Any key can be set: --section.key VALUE.";

  auto show = std::make_shared<ConfigOptions>();
  CLI::App* cmd = add_config_command(
      *config, choice, "show", "Print every key, its value and origin, and the model's parameters, FLOPs and memory",
      run_config_show, show);
  cmd->add_option("file", show->file, "config file; none: defaults and settings");
  cmd->add_option("-n,--ranks", show->ranks, "ranks that will be started");
  cmd->add_flag("--explain", show->explained, "also print the meaning, unit, limits and choices of each key");
  cmd->add_option("--rates", show->rates, "print the learning rates of the first N steps, or of FIRST:LAST, instead");
  cmd->add_flag("--params", show->parameters, "print the model's parameters, and which of them decay, instead");
  cmd->add_flag("--json", show->json,
                "one JSON object of all keys, with value and origin; with --rates or --params: one object per line");
  std::string presets;
  for (const std::string& name : config::preset_names()) presets += " " + name;
  cmd->footer(text(settings, "\nPresets:", presets,
                   "\n\nExample:\n  trireme config show --model.preset llama3-8b --parallelism.tp 4 -n 8"));

  auto check = std::make_shared<ConfigOptions>();
  cmd = add_config_command(*config, choice, "check",
                           "Report everything that would keep a config from training, before anything starts",
                           run_config_check, check);
  cmd->add_option("file", check->file, "config file")->required();
  cmd->add_option("-n,--ranks", check->ranks, "ranks that will be started");
  cmd->add_option("--gpu", check->gpu, "predict step time and memory on this GPU: h100, h200, a100, ...");
  cmd->add_option("--config-copy", check->config_copy, "")->group("");
  cmd->add_flag("--no-files", check->no_files, "do not read token files or folders: for a config of another machine");
  cmd->footer(text(settings, "\n\nExample:\n  trireme config check examples/tiny.toml -n 4 --parallelism.tp 2"));

  auto import = std::make_shared<ConfigOptions>();
  cmd = add_config_command(*config, choice, "import", "Translate another trainer's config to a Trireme config",
                           run_config_import, import);
  cmd->add_option("file", import->file,
                  "nanotron YAML, torchtitan TOML, DeepSpeed JSON, Megatron script, Hugging Face JSON")
      ->required();
  cmd->add_option("--from", import->from,
                  "nanotron, torchtitan, megatron, deepspeed, trainer or hf; default: by the file");
  cmd->add_option("-o,--output", import->output, "new file to write; default: standard output");
  cmd->add_flag("--all", import->all, "also list the keys that have no effect here");
  cmd->footer("Example:\n  trireme config import config_tiny_llama.yaml -o run.toml");
  add_config_help(*config, choice);
}

void add_convert(CLI::App& app, Choice& choice) {
  auto options = std::make_shared<ConvertCommand>();
  CLI::App* cmd =
      app.add_subcommand("convert", "Convert the weights of a model to a Hugging Face folder or a nanotron checkpoint");
  cmd->add_option("source", options->source,
                  "a Hugging Face folder, a nanotron checkpoint, or a run, one of its checkpoints, or their folder")
      ->required();
  cmd->add_option("output", options->output, "new folder to write")->required();
  cmd->add_option("--to", options->to, "hf or nanotron")->required();
  cmd->add_option("--dtype", options->dtype,
                  "bfloat16, float16, float32 or float64, rounded to nearest; default: as in the source; of a run: its "
                  "precision.param");
  cmd->add_option("--tp", options->tp, "nanotron: tensor-parallel ranks to shard the weights for")
      ->capture_default_str();
  cmd->add_option("--pp", options->pp, "nanotron: pipeline ranks to name the files for")->capture_default_str();
  cmd->add_option("--layout", options->layout,
                  "nanotron: file names as its code writes them (code), or as its documentation does (documented)")
      ->capture_default_str();
  cmd->footer(
      "config.json and the tokenizer's files are copied too. The folder appears once it is complete; nothing is "
      "overwritten.\n\nExample:\n  trireme convert models/llama checkpoints/llama --to nanotron --tp 2\n"
      "  trireme convert runs/latest models/trained --to hf");
  cmd->callback(
      [options, &choice] { choice.run = [options](Console& console) { return run_convert(*options, console); }; });
}

void add_reshape(CLI::App& app, Choice& choice) {
  auto options = std::make_shared<ReshapeCommand>();
  CLI::App* cmd = app.add_subcommand("reshape", "Rewrite a checkpoint as the files of another layout");
  cmd->add_option("checkpoint", options->checkpoint,
                  "a checkpoint, or the folder of a run: then its newest valid checkpoint")
      ->required();
  cmd->add_option(
         "--to", options->to,
         "the layout: any of pp, dp, cp, tp, ep, expert_tp, zero, replicate, virtual_stages; others are unchanged")
      ->required();
  cmd->add_option("-o,--output", options->output, "new folder; the checkpoint is step-N in it")->required();
  cmd->footer(
      "`trireme train` loads any checkpoint on any layout: this is only for tools that read per-rank files.\n"
      "Every byte is verified. The folder appears once it is complete; nothing is overwritten.\n\n"
      "Example:\n  trireme reshape runs/latest --to tp=1,pp=2 -o reshaped");
  cmd->callback([options, &choice] {
    options->version = "trireme " TRIREME_VERSION;
    choice.run = [options](Console& console) { return run_reshape(*options, console); };
  });
}

constexpr const char* kRestartsHelp =
    "restart the ranks at most N times, when one is killed or exits with 70, 71 or 72; gives up after 3 restarts "
    "without a new checkpoint";

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
      "rank that "
      "fails (71: killed, 72: hung or mismatched calls).\n\nExample:\n  trireme launch -n 4 ./my_program --steps "
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

void add_doctor(CLI::App& app, Choice& choice) {
  auto options = std::make_shared<DoctorCommand>();
  CLI::App* cmd = app.add_subcommand("doctor", "Show what this machine and this build can do");
  cmd->add_flag("--json", options->json, "print one JSON object: found and remark by name");
  cmd->add_flag("--quick", options->quick, "skip the all-reduce between ranks, which takes two seconds");
  cmd->footer("Example:\n  trireme doctor");
  cmd->callback([options, &choice] {
    options->words = choice.words.all;
    choice.run = [options](Console& console) { return number(run_doctor(*options, console)); };
  });
}

/// Commands for which --section.key VALUE is a setting.
const std::vector<std::string>& commands_with_settings() {
  static const std::vector<std::string> names{"config", "plan", "train", "verify", "bench"};
  return names;
}

void add_completion(CLI::App& app, Choice& choice) {
  auto shell = std::make_shared<std::string>("bash");
  CLI::App* cmd = app.add_subcommand("completion", "Print a script that completes commands, options, keys and values");
  cmd->add_option("shell", *shell, "bash, zsh or fish")->capture_default_str();
  cmd->footer("Example:\n  source <(trireme completion bash)\n  trireme completion fish | source");
  cmd->callback([shell, &choice] {
    choice.run = [shell](Console& console) {
      console.out << completion_script(*shell, std::filesystem::read_symlink("/proc/self/exe").string());
      return 0;
    };
  });
}

/// The command that `words` name, as far as they do.
const CLI::App& named_command(const CLI::App& app, std::span<const std::string> words) {
  const CLI::App* inner = words.empty() ? nullptr : inner_command(app, words.front());
  return inner == nullptr ? app : named_command(*inner, words.subspan(1));
}

/// "trireme help train" is "trireme train --help".
std::vector<std::string> without_help_word(std::vector<std::string> words) {
  if (words.empty()) return {"--help"};
  if (words.front() != "help") return words;
  words.erase(words.begin());
  words.emplace_back("--help");
  return words;
}

/// Options stand behind the command.
void check_first_word(const CLI::App& app, const std::vector<std::string>& words) {
  const std::string& word = words.front();
  const std::string option = word.substr(0, word.find('='));
  if (!word.starts_with('-') || app.get_option_no_throw(option) != nullptr) return;
  throw ConfigError(text("unknown option ", config::shortened(word), ": options go after the command",
                         "\n  fix: trireme COMMAND ", config::shortened(word), ", or trireme --help"));
}

/// The number of items that an option takes: 0 for a flag; nullptr is an unknown one.
bool takes_one_value(const CLI::Option* option) { return option != nullptr && option->get_items_expected_max() == 1; }

/// Where the program of `launch` begins: after --, else the first word that is neither an option nor its value.
std::size_t program_begin(const CLI::App& launch, const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--" || !words[i].starts_with('-')) return i;
    if (words[i].find('=') == std::string::npos && takes_one_value(launch.get_option_no_throw(words[i]))) ++i;
  }
  return words.size();
}

/// Takes out options of `command` that are given again later, up to `end`: the last one counts.
std::vector<std::string> without_repeated_options(const CLI::App& command, const std::vector<std::string>& words,
                                                  std::size_t end, std::vector<std::string>& repeated) {
  struct Given {
    std::size_t begin, count;
  };
  std::map<const CLI::Option*, Given> last;
  std::vector<bool> dropped(words.size(), false);
  for (std::size_t i = 0; i < end; ++i) {
    if (!words[i].starts_with('-')) continue;
    const std::size_t equals = words[i].find('=');
    const CLI::Option* option = command.get_option_no_throw(words[i].substr(0, equals));
    if (!takes_one_value(option) || option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll) continue;
    const Given now{i, equals == std::string::npos ? std::size_t{2} : std::size_t{1}};
    if (const auto before = last.find(option); before != last.end()) {
      for (std::size_t k = 0; k < before->second.count; ++k) dropped[before->second.begin + k] = true;
      if (std::ranges::find(repeated, words[i].substr(0, equals)) == repeated.end())
        repeated.push_back(words[i].substr(0, equals));
    }
    last[option] = now;
    i += now.count - 1;
  }
  std::vector<std::string> out;
  for (std::size_t i = 0; i < words.size(); ++i)
    if (!dropped[i]) out.push_back(words[i]);
  return out;
}

/// A better message than CLI11's, which would only say that a command is missing.
/// `above`: the commands that `app` is of, "config ".
void check_command(const CLI::App& app, std::span<const std::string> words, const std::string& above = "") {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names.push_back(command->get_name());
    if (!words.empty() && words.front() == names.back())
      return check_command(*command, words.subspan(1), text(above, names.back(), " "));
  }
  if (names.empty() || words.empty() || words.front().starts_with('-')) return;
  if (!app.get_options([](const CLI::Option* option) { return option->get_positional(); }).empty() &&
      words.front().find_first_of("./") != std::string::npos)
    return;  // its file
  const std::string near = config::nearest(words.front(), names);
  throw ConfigError(text("unknown command '", above, config::shortened(words.front()), "'",
                         near.empty() ? "" : text("; did you mean '", above, near, "'?"), "\n  fix: trireme ", above,
                         "--help lists them"));
}

/// An argument that no command takes: a setting without its section, perhaps.
std::string unexpected(const std::string& what, const std::vector<std::string>& flags) {
  for (const std::string& flag : flags) {
    if (what.find(flag) == std::string::npos) continue;
    std::string settings;
    for (const std::string& setting : config::settings_like(flag))
      settings += (settings.empty() ? "" : " or ") + setting;
    if (!settings.empty())
      return text("unknown flag ", config::shortened(flag), "\n  fix: did you mean ", settings,
                  "? A setting is --section.key VALUE; trireme config show lists them");
  }
  return text(what, "\n  fix: trireme --help, or trireme COMMAND --help");
}

/// Long lines of a help text are broken; what follows stands below the description that it continues.
std::string help_in_width(const std::string& help, int width) {
  constexpr std::size_t kDescriptions = 30;  // CLI11's column
  const auto most = static_cast<std::size_t>(std::max(60, width));
  std::string out, line;
  for (std::istringstream lines(help); std::getline(lines, line); out += "\n") {
    const std::size_t text_begin = line.find_first_not_of(' ');
    const bool described = line.size() > kDescriptions && line.starts_with("  ") && line[kDescriptions - 1] == ' ' &&
                           line[kDescriptions] != ' ';
    const std::string indent(described ? kDescriptions : std::min(text_begin, line.size()), ' ');
    while (display_width(line) > most) {
      std::size_t cut = std::string::npos;
      for (std::size_t at = line.find(' ', indent.size() + 1); at != std::string::npos; at = line.find(' ', at + 1)) {
        if (display_width(line.substr(0, at)) > most) break;
        cut = at;
      }
      if (cut == std::string::npos) break;
      out += line.substr(0, line.find_last_not_of(' ', cut) + 1) + "\n";
      line = indent + line.substr(cut + 1);
    }
    out += line;
  }
  return out;
}

int report(Console& console, const std::string& what, ExitCode code) {
  console.err << "error: " << what << "\n";
  if (code == ExitCode::internal) console.err << "  this is a bug in trireme: please report it\n";
  return number(code);
}

}  // namespace

int run_command_line(int argc, const char* const* argv, Console& console) {
  CLI::App app{"Distributed training for the PyTorch C++ API"};
  app.name("trireme");
  app.set_version_flag("-v,--version", build_facts());
  app.require_subcommand(1);
  app.footer("trireme COMMAND --help shows its options.");
  Choice choice;
  add_schedule(app, choice);
  add_config(app, choice);
  const auto chosen = [&choice](std::function<int(Console&)> run) { choice.run = std::move(run); };
  add_data(app, chosen);
  add_convert(app, choice);
  add_checkpoint(app, chosen);
  add_reshape(app, choice);
  add_plan(app, choice.words, chosen);
  add_train(app, choice);
  add_launch(app, choice);
  add_model_commands(app, choice.words, chosen);
  add_report(app, choice);
  add_bench(app, choice.words, chosen);
  add_doctor(app, choice);
  add_completion(app, choice);

  int code = 0;
  std::vector<std::string> flags;  // of a command that takes settings: what is none of them
  try {
    std::vector<std::string> words(argv + std::min(argc, 1), argv + argc), rest, repeated;
    if (words.size() > 2 && words[0] == "completion" && words[1] == "--words") {  // asked by completion_script()
      words.erase(words.begin(), words.begin() + 3);                              // and "--"
      for (const std::string& word : completions(app, commands_with_settings(), words)) console.out << word << "\n";
      return 0;
    }
    words = without_help_word(std::move(words));
    check_first_word(app, words);
    check_command(app, words);
    const bool launches = words.front() == "launch";
    const CLI::App& command = named_command(app, words);
    words = without_repeated_options(command, words, launches ? program_begin(command, words) : words.size(), repeated);
    const bool takes_settings =
        std::ranges::find(commands_with_settings(), words.front()) != commands_with_settings().end();
    if (takes_settings) words = config::without_repeated(words, repeated);
    for (const std::string& flag : repeated)
      console.err << "note: " << config::shortened(flag) << " is given more than once: the last one counts\n";
    // Without what is repeated, so that a program which goes on with these words does not tell it again.
    choice.words.all = words;
    choice.words.all.insert(choice.words.all.begin(), argc > 0 ? argv[0] : "trireme");
    if (takes_settings) {
      choice.words.overrides = config::take_flags(words, rest);
      std::ranges::copy_if(rest, std::back_inserter(flags), [](const std::string& w) { return w.starts_with("--"); });
    } else {
      rest = words;
    }
    if (launches) {  // the rest belongs to the program
      const std::size_t begin = program_begin(command, rest);
      if (begin < rest.size())
        choice.program.assign(rest.begin() + static_cast<std::ptrdiff_t>(begin + (rest[begin] == "--" ? 1 : 0)),
                              rest.end());
      rest.resize(begin);
    }
    std::ranges::reverse(rest);  // CLI11 expects reverse order
    app.parse(std::move(rest));
    code = choice.run(console);
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream words;
    app.exit(e, words, words);
    console.out << help_in_width(words.str(), console.terminal.width);
  } catch (const CLI::ExtrasError& e) {
    code = report(console, unexpected(e.what(), flags), ExitCode::config);
  } catch (const CLI::ParseError& e) {
    code = report(console, text(e.what(), "\n  fix: trireme --help, or trireme COMMAND --help"), ExitCode::config);
  } catch (const Error& e) {
    code = report(console, e.what(), e.exit_code());
  } catch (const std::exception& e) {
    const std::optional<LimitReached> limit = limit_behind(e);
    code = limit ? report(console, limit->what, limit->code) : report(console, e.what(), ExitCode::internal);
  }
  console.out.flush();
  // The result of a training is in its folder, and nobody has to read what it prints.
  if (!console.out && code == 0 && !choice.output_is_optional)
    code = report(console, "cannot write to standard output", ExitCode::config);
  return code;
}

}  // namespace trireme::cli
