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
  cmd->add_option("--batch-sizes", command->batch_sizes, "per device; for a pipeline: in total")->delimiter(',');
  cmd->add_option("--epochs", command->epochs, "epochs per run")->capture_default_str();
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

void add_comm(CLI::App& group, const std::vector<std::string>& words, const Chosen& chosen) {
  auto command = std::make_shared<BenchCommCommand>();
  CLI::App* cmd =
      group.add_subcommand("comm", "Time the collectives between ranks: latency, algorithm and bus bandwidth");
  cmd->add_option("-n,--ranks", command->ranks,
                  "start N ranks on this host; default: the ranks of torchrun, srun or mpirun");
  cmd->add_option("--ops", command->ops, "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv")
      ->delimiter(',');
  cmd->add_option("--sizes", command->sizes, "bytes per rank, of the larger of input and output")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false))
      ->default_str("1K,64K,1M,16M");
  cmd->add_option("--repetitions", command->repetitions, "calls per operation and size, at most")
      ->capture_default_str();
  cmd->add_option("--backend", command->backend,
                  "auto: nccl on GPUs, gloo on CPUs; ranks of one host share memory instead of gloo")
      ->capture_default_str();
  cmd->add_option("--csv", command->csv, "also write the table to this file");
  cmd->footer("Example:\n  trireme bench comm -n 2 --ops all_reduce --sizes 1K,1M,64M");
  cmd->callback([command, chosen, &words] {
    command->words = words;
    chosen([command](Console& console) { return run_bench_comm(*command, console); });
  });
}

/// Without a command of the group.
void add_layouts(CLI::App& group, const CommandWords& words, const Chosen& chosen) {
  auto command = std::make_shared<BenchLayoutsCommand>();
  group.add_option("config", command->file, "config file to compare layouts of");
  group.add_option("-n,--ranks", command->ranks, "ranks per layout");
  group.add_option("--layouts", command->layouts, "dp4,tp4,dp2.tp2,dp2.pp2,dp4.zero3: axes that are not listed are 1")
      ->delimiter(',');
  group.add_option("--steps", command->steps, "timed steps per layout")->capture_default_str();
  group.add_option("--warm-up", command->warm_up, "untimed steps before them")->capture_default_str();
  group.add_option("-o,--output", command->output, "folder for layouts.csv, layouts.svg, runs and logs")
      ->capture_default_str();
  group.footer(
      "With a config: trains with each layout and with one rank, in fresh processes, on the same global batch; shows "
      "speed, and whether the losses match those of one rank. Exit code 1 if they do not, or if a layout failed.\n"
      "Any key can be set: --section.key VALUE.\n\n"
      "Example:\n  trireme bench examples/tiny.toml -n 2 --layouts dp2,tp2,pp2 --steps 20");
  group.callback([&group, command, chosen, &words] {
    if (!group.get_subcommands().empty()) return;
    command->overrides = words.overrides;
    chosen([command](Console& console) { return run_bench_layouts(*command, console); });
  });
}

}  // namespace

void add_bench(CLI::App& app, const CommandWords& words, const Chosen& chosen) {
  CLI::App* group = app.add_subcommand("bench", "Benchmarks: training layouts, collectives, fit()");
  group->require_subcommand(0, 1);
  add_layouts(*group, words, chosen);
  add_comm(*group, words.all, chosen);
  add_fit(*group, words.all, chosen);
  auto machine = std::make_shared<BenchMachineCommand>();
  CLI::App* measure = group->add_subcommand("machine", "Measure this machine with short trainings, for `trireme plan`");
  measure->add_option("-n,--ranks", machine->ranks, "ranks on this host; they share its cores")->capture_default_str();
  measure->add_option("--steps", machine->steps, "timed steps of each")->capture_default_str();
  measure->add_option("--trainings", machine->trainings, "only so many of them, which tell less; default: all");
  measure->add_option("-o,--output", machine->output, "new file to write")->capture_default_str();
  measure->footer(
      "Example:\n  trireme bench machine -n 2 -o machine.toml\n  trireme plan run.toml --gpus 2 --machine "
      "machine.toml");
  runs(*measure, chosen, machine, &run_bench_machine);
  auto command = std::make_shared<BenchCombineCommand>();
  CLI::App* cmd =
      group->add_subcommand("combine", "Merge tables of runs on different numbers of devices into one, with a figure");
  cmd->add_option("files", command->files, "tables that `trireme bench fit` wrote")->required();
  cmd->add_option("--output", command->output, "folder for the result")->capture_default_str();
  cmd->footer("Example:\n  trireme bench combine benchmark/benchmark-bert-*.csv");
  runs(*cmd, chosen, command, &run_bench_combine);
}

}  // namespace trireme::cli
