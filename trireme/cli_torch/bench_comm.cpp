// `trireme bench comm`
#include <cmath>
#include <fstream>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/table.hpp"
#include "trireme/cli/bench.hpp"
#include "trireme/runtime/rank/rank_main.hpp"
#include "trireme/workloads/comm_speed.hpp"

namespace trireme::cli {
namespace {

std::string gigabytes(double bytes_per_second) { return human_number(std::round(bytes_per_second / 1e6) / 1e3); }

void print_speeds(const std::vector<workloads::CommSpeed>& rows, const BenchCommCommand& command, Console& console) {
  std::vector<TableRow> cells;
  for (const workloads::CommSpeed& row : rows)
    cells.push_back({row.op, human_bytes(static_cast<double>(row.bytes)), thousands(row.count),
                     human_seconds(row.seconds), gigabytes(row.algbw), gigabytes(row.busbw),
                     text("+", human_number(std::round(1000 * (row.seconds / row.fastest - 1)) / 10), " %")});
  console.out << table({"op", "size", "count", "latency", "algbw GB/s", "busbw GB/s", "slowest rank"}, cells)
              << "median of up to " << command.repetitions << " calls of the slowest rank; float32 over "
              << rows.front().transport << "; busbw = algbw x "
              << "(all_reduce 2(n-1)/n, all_gather, reduce_scatter and all_to_all (n-1)/n)\n";
  if (command.csv.empty()) return;
  std::ofstream csv(command.csv);
  csv << "op,bytes,count,latency_s,algbw_bytes_per_s,busbw_bytes_per_s,fastest_rank_s,transport\n";
  for (const workloads::CommSpeed& row : rows)
    csv << row.op << "," << row.bytes << "," << row.count << "," << row.seconds << "," << row.algbw << "," << row.busbw
        << "," << row.fastest << "," << row.transport << "\n";
  csv.close();
  require<ConfigError>(csv.good(), command.csv, ": could not be written");
}

}  // namespace

int run_bench_comm(const BenchCommCommand& command, Console& console) {
  RankMain how{.words = command.words, .variables = process_variables()};
  how.quiet = true;
  how.flags.local_ranks = command.ranks;
  workloads::CommSpeedOptions options;
  options.ops = command.ops.empty() ? workloads::comm_op_names() : command.ops;
  options.sizes = command.sizes;
  options.repetitions = command.repetitions;
  options.backend = command.backend;
  return rank_main(how, [&](const Environment& env) {
    const std::vector<workloads::CommSpeed> rows = workloads::measure_comm(options, env, how.variables);
    if (env.rank == 0) print_speeds(rows, command, console);
  });
}

}  // namespace trireme::cli
