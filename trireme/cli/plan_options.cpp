// The options of `trireme plan`.
#include <memory>

#include <CLI/CLI.hpp>

#include "trireme/cli/model_options.hpp"
#include "trireme/planner/machine.hpp"
#include "trireme/planner/software.hpp"

namespace trireme::cli {
namespace {

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

void add_plan(CLI::App& app, const CommandWords& words, const Chosen& chosen) {
  auto command = std::make_shared<PlanCommand>();
  CLI::App* cmd =
      app.add_subcommand("plan", "Predict speed and memory of layouts on many GPUs, and find the best ones");
  cmd->add_option("config", command->file, "config file; without one: --model.preset NAME");
  cmd->add_option("--gpus", command->gpus, "number of GPUs")->required();
  CLI::Option* gpu = cmd->add_option("--gpu", command->gpu, list_of(planner::gpu_names()))->capture_default_str();
  CLI::Option* machine = cmd->add_option("--machine", command->machine_file,
                                         "instead of --gpu: a file that `trireme bench machine` wrote");
  machine->excludes(gpu);
  cmd->add_option("--per-host", command->per_host, "GPUs of a host; default: 8, or those of the NVLink domain");
  cmd->add_option("--network-gb-s", command->network_gb_s, "GB/s per GPU to other hosts; default: that of the GPU");
  cmd->add_option("--gpu-memory-gb", command->gpu_memory_gb, "memory of a GPU; default: by its name");
  cmd->add_option("--tokens-per-step", command->tokens_per_step,
                  "tokens of a step; default: training.global_batch_size, else 4,194,304");
  cmd->add_option("--tokens", command->tokens, "tokens of the training, for its duration; default: training.steps");
  cmd->add_option("--mtbf-hours", command->mtbf_hours, "hours between failures of one GPU and its part of a host")
      ->capture_default_str();
  cmd->add_option("--layout", command->layout, "predict this one only: tp4.pp2.dp8, with dp as what is left");
  cmd->add_option("--count", command->count, "layouts to show")->capture_default_str();
  CLI::Option* software = cmd->add_option("--software", command->software,
                                          text("a trainer to predict: ", list_of(planner::software_names())))
                              ->capture_default_str();
  machine->excludes(software);
  cmd->add_option("-o,--output", command->output, "write a config with the best layout to this file");
  cmd->add_option("--svg", command->svg, "write a drawing of memory and speed to this file");
  cmd->add_flag("--json", command->json, "JSON");
  cmd->footer(
      "Any key can be set: --section.key VALUE. The formulas and their errors on measured runs: docs/planning.md.\n\n"
      "Example:\n  trireme plan --model.preset llama3-70b --training.seq_len 8192 --gpus 64 --gpu h100\n"
      "  trireme plan run.toml --gpus 16 --gpu a100 -o planned.toml");
  cmd->callback([command, chosen, &words] {
    command->overrides = words.overrides;
    chosen([command](Console& console) { return static_cast<int>(run_plan(*command, console)); });
  });
}

}  // namespace trireme::cli
