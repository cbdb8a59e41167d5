#pragma once
// Runs a program as the ranks of this host: hosts the store, launches, and saves the flight records after a failure.
#include <chrono>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "trireme/runtime/environment/variables.hpp"

namespace trireme::launcher {

/// Starts `program` as the ranks of a job: hosts the store, runs launch(), and writes the last calls of every rank to a
/// file if the job fails; then, up to max_restarts times, the whole again. `num_nodes` > 1: the store is at master,
/// hosted by node 0.
struct Job {
  std::vector<std::string> program;
  Variables variables;
  int ranks = 1, num_nodes = 1, node_rank = 0;
  int world_size = 0, first_rank = 0;  // for nodes with different slots; 0: num_nodes x ranks
  std::string master_addr{};
  int master_port = 0;  // 0: any free port on this host
  int threads = 0;
  int max_restarts = 0;
  int first_attempt = 0;                         // of a job over several hosts whose parent launcher restarts it
  std::string start_id{};                        // TRIREME_START_ID, the same in all attempts; empty: a new one
  std::chrono::milliseconds restart_unit{1000};  // of the waits between attempts
  // Attempts after the first have their own folders beside these: see attempt_folder().
  std::string log_folder{};   // for the ranks' output; empty: none
  std::string hang_folder{};  // for their last calls after a failure; empty: "hang" in the log folder
  int control_fd = -1;
  bool saves_on_stop = false;  // see LaunchOptions
  std::string out_of_memory_advice{};
  std::function<bool(int code)> drops_logs{};
};
int run_job(const Job& job, std::ostream& err);

}  // namespace trireme::launcher
