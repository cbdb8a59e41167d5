// The options of `trireme bench`.
#include "trireme/cli/bench.hpp"

namespace trireme::cli {
namespace {

void add_fit(CLI::App& group, const std::vector<std::string>& words, const Chosen& chosen) {
  auto command = std::make_shared<BenchFitCommand>();
  CLI::App* cmd = group.add_subcommand("fit", "Time fit() on a model: every technique with every batch size");
  cmd->add_option("--model", command->model, "orbit5k, orbit5kbig, bert or bertbig")->capture_default_str();
  cmd->add_option("--techniques", command->techniques,
                  "none, fsdp_shard_grad_op, fsdp_full_shard, fsdp_no_shard, pipeline")
      ->delimiter(',');
  cmd->add_option("--batch-sizes", command->batch_sizes, "per device; of the whole pipeline")->delimiter(',');
  cmd->add_option("--epochs", command->epochs, "of each run")->capture_default_str();
  cmd->add_option("-n,--ranks", command->ranks, "devices of the parallel techniques")->capture_default_str();
  cmd->add_option("--samples", command->samples, "training samples; a quarter as many for validation")
      ->capture_default_str();
  cmd->add_option("--device", command->device, "cpu or cuda; auto: cuda if there is a GPU")->capture_default_str();
  cmd->add_option("--output", command->output, "folder for the table and the figure")->capture_default_str();
  cmd->add_option("--result", command->result, "")->group("");
  cmd->footer(
      "Each run is in new processes. Writes benchmark-MODEL-DEVICE-TIME.csv and .svg: run time against batch size.\n\n"
      "Example:\n  trireme bench fit --model bert --techniques none,fsdp_full_shard --batch-sizes 8,16 -n 2");
  cmd->callback([command, chosen, &words] {
    command->words = words;
    chosen([command](Console& console) { return run_bench_fit(*command, console); });
  });
}

}  // namespace

void add_bench(CLI::App& app, const std::vector<std::string>& words, const Chosen& chosen) {
  CLI::App* group = app.add_subcommand("bench", "Benchmarks of this machine");
  group->require_subcommand(1);
  add_fit(*group, words, chosen);
  auto command = std::make_shared<BenchCombineCommand>();
  CLI::App* cmd =
      group->add_subcommand("combine", "Join the tables of several numbers of devices in one, with a figure");
  cmd->add_option("files", command->files, "tables that `trireme bench fit` wrote")->required();
  cmd->add_option("--output", command->output, "folder for the result")->capture_default_str();
  cmd->footer("Example:\n  trireme bench combine benchmark/benchmark-bert-*.csv");
  runs(*cmd, chosen, command, &run_bench_combine);
}

}  // namespace trireme::cli
