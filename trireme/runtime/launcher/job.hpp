#pragma once
// A program started as the ranks of this host: the store, the launch, and what they leave behind.
#include <iosfwd>
#include <string>
#include <vector>

#include "trireme/runtime/rank/variables.hpp"

namespace trireme::launcher {

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

}  // namespace trireme::launcher
