// The options of `trireme config`.
#include <memory>

#include <CLI/CLI.hpp>

#include "trireme/base/error.hpp"
#include "trireme/cli/command_choice.hpp"
#include "trireme/config/schema/presets.hpp"

namespace trireme::cli {
namespace {

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

}  // namespace

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

}  // namespace trireme::cli
