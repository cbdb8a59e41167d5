// The options of the commands that run a model: verify.
#include "trireme/cli/model_options.hpp"

#include "trireme/cli/commands.hpp"

namespace trireme::cli {
namespace {

void add_verify(CLI::App& app, const CommandWords& words, const Chosen& chosen) {
  auto command = std::make_shared<VerifyCommand>();
  CLI::App* cmd = app.add_subcommand("verify", "Compare a layout with one rank: loss and every gradient");
  cmd->add_option("config", command->file, "config file")->required();
  cmd->add_option("-n,--ranks", command->ranks, "ranks of the layout; default: as many as it needs, with dp = -1 as 1");
  cmd->add_option("--against", command->against,
                  "another layout to compare with, \"tp=2,pp=2\"; what is not named is 1");
  cmd->add_option("--steps", command->steps, "batches to compare; the weights stay those of the beginning")
      ->capture_default_str();
  cmd->add_option("--dtype", command->dtype, "float64, float32, bfloat16 or float16; the bound is that of its rounding")
      ->capture_default_str();
  cmd->add_flag("--json", command->json, "print one JSON object: every gradient and activation");
  cmd->footer(
      "Same weights, same batches. Says which module differs first: in forward by its output, in backward by its\n"
      "gradients. Exit code 0: agrees, 1: differs. On CPUs the ranks are threads of this process; with GPUs, and\n"
      "under torchrun, srun or mpirun, they are processes. Any key can be set: --section.key VALUE.\n\n"
      "Example:\n  trireme verify examples/tiny.toml -n 4 --parallelism.tp 2");
  cmd->callback([command, &words, chosen] {
    command->overrides = words.overrides;
    command->words = words.all;
    chosen([command](Console& console) { return run_verify(*command, console); });
  });
}

}  // namespace

void add_model_commands(CLI::App& app, const CommandWords& words, const Chosen& chosen) {
  add_verify(app, words, chosen);
}

}  // namespace trireme::cli
