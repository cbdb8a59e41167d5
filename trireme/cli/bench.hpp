#pragma once
// `trireme bench`: the benchmark of fit() over techniques and batch sizes.
#include <string>
#include <vector>

#include "trireme/cli/command_group.hpp"

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
void add_bench(CLI::App& app, const std::vector<std::string>& words, const Chosen& chosen);

}  // namespace trireme::cli
