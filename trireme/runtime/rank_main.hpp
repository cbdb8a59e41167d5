#pragma once
// The main() of a program that runs as ranks, however it was started.
#include <functional>
#include <string>
#include <vector>

#include "trireme/runtime/environment.hpp"
#include "trireme/runtime/variables.hpp"

namespace trireme {

/// This process's environment variables. For main() alone: what is below gets them as an argument.
Variables process_variables();

struct RankMain {
  std::vector<std::string> words;  // of the command line, the program's own first
  Variables variables{};
  EnvironmentFlags flags{};  // flags.local_ranks: -n N starts N ranks of this program
  std::string log_folder{};  // for ranks that this process starts
  bool quiet = false;        // do not say on stderr how it was started
};

/// Becomes a rank and runs `body`, or starts the ranks of this host and waits for them. Whatever goes wrong is told in
/// one place, on stderr, as "error: ..."; the exit code is that of the failure.
int rank_main(const RankMain& how, const std::function<void(const Environment&)>& body);

/// Starts `program` as the ranks of a job: hosts the store, runs launch(), and leaves the last calls of every rank in a
/// file when the job fails. `num_nodes` > 1: the store is at master, and node 0 hosts it.
struct Job {
  std::vector<std::string> program;
  Variables variables;
  int ranks = 1, num_nodes = 1, node_rank = 0;
  int world_size = 0, first_rank = 0;  // for nodes that differ; 0: num_nodes x ranks
  std::string master_addr{};
  int master_port = 0;  // 0: any that is free, on this host
  int threads = 0;
  std::string log_folder{};   // of the ranks' output; empty: none
  std::string hang_folder{};  // of their last calls when the job failed; empty: "hang" in the log folder
  int control_fd = -1;
};
int run_job(const Job& job, std::ostream& err);

}  // namespace trireme
