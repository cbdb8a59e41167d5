#pragma once
// `trireme bench`: layouts of a training, collectives, and fit() over techniques and batch sizes.
#include <string>
#include <vector>

#include "trireme/cli/command_group.hpp"
#include "trireme/cli/model_options.hpp"

namespace trireme::cli {

struct BenchFitCommand {
  std::string model = "orbit5k";
  std::vector<std::string> techniques{"none", "fsdp_shard_grad_op", "fsdp_full_shard", "fsdp_no_shard", "pipeline"};
  std::vector<int> batch_sizes{2, 4, 8, 16, 32};
  int epochs = 3, ranks = 1;
  std::int64_t samples = 200;
  std::string output = "benchmark", device = "auto";
  std::string result{};              // of one run, that this process is a rank of
  std::vector<std::string> words{};  // the command line
};
int run_bench_fit(const BenchFitCommand& command, Console& console);

struct BenchCommCommand {
  std::vector<std::string> ops{};  // empty: all
  std::vector<std::int64_t> sizes{1024, 65536, 1048576, 16777216};
  int ranks = 0, repetitions = 20;
  std::string backend = "auto", csv{};
  std::vector<std::string> words{};  // the command line
};
int run_bench_comm(const BenchCommCommand& command, Console& console);

struct BenchLayoutsCommand {
  std::string file{};  // config
  config::Settings overrides{};
  int ranks = 0, steps = 30, warm_up = 5;
  std::vector<std::string> layouts{};  // "dp2.tp2"
  std::string output = "benchmark";
};
int run_bench_layouts(const BenchLayoutsCommand& command, Console& console);

struct BenchMachineCommand {
  int ranks = 1, steps = 8, trainings = 0;  // 0: all
  std::string output = "machine.toml";
};
int run_bench_machine(const BenchMachineCommand& command, Console& console);

struct BenchCombineCommand {
  std::vector<std::string> files;
  std::string output = "benchmark";
};
int run_bench_combine(const BenchCombineCommand& command, Console& console);

/// A row of the table; the columns are named after its fields.
struct BenchRow {
  std::string start_time = {}, end_time = {};
  double run_time = 0;  // seconds of training and validation
  std::string model = {}, parallel = {};
  int epochs = 0, batch_size = 0;
  double loss = 0, accuracy = 0;  // of validation
  int gpu_count = 0;              // ranks, also on a CPU
  std::string gpu_model = {};
};
std::string csv_header();
std::string csv_line(const BenchRow& row);
/// ConfigError that names the file and the line.
std::vector<BenchRow> read_csv(const std::string& file);
/// Writes STEM.csv and STEM.svg, run time against batch size, one line per technique and number of devices.
void write_results(const std::string& stem, const std::string& title, const std::vector<BenchRow>& rows);

/// `words`: the command line. Adds the group of commands.
void add_bench(CLI::App& app, const CommandWords& words, const Chosen& chosen);

}  // namespace trireme::cli
