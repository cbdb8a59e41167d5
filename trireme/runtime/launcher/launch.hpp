#pragma once
// The ranks of one host: started together, watched, and all gone when the job is over, however that came.
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include <unistd.h>

#include "trireme/runtime/memory/cgroup_facts.hpp"
#include "trireme/runtime/rank/variables.hpp"

namespace trireme::launcher {

struct LaunchOptions {
  std::vector<std::string> program;  // the words of a rank; the first is looked for in the PATH of `variables`
  int ranks = 1;                     // of this host
  int num_nodes = 1, node_rank = 0;
  int world_size = 0, first_rank = 0;    // world_size 0: num_nodes x ranks, and first_rank = node_rank x ranks
  std::string master_addr{"127.0.0.1"};  // where a store listens already
  int master_port = 0;
  std::string job_id{};
  int threads = 0;                  // OMP_NUM_THREADS; 0: as it is set, else usable cores / ranks
  std::string log_folder{};         // rank R writes to rNNNN.log in it; empty: no logs
  Variables variables{};            // the environment to start from
  std::size_t black_box_bytes = 0;  // shared memory for each rank, TRIREME_BLACK_BOX_FD; 0: none

  /// What a rank did last, from its black box, for the text of its failure; "": nothing known.
  std::function<std::string(const void* black_box)> last_call{};
  /// For every rank, once all are gone, when the job failed. The black box is null if there is none.
  std::function<void(int rank, const void* black_box)> on_stop{};

  int out_fd = STDOUT_FILENO, err_fd = STDERR_FILENO;  // rank 0's output goes there too
  int control_fd = -1;  // of a launcher above this one (Note [Lifelines]); -1: there is none
  CgroupPlaces cgroup{};
};

/// Runs until all ranks are gone. `err` gets the first failure, or who stopped the job.
/// Returns 0 if all ranks did; the exit code of the first that failed, 71 if a signal killed it; the ranks' own code
/// (75, 130), else 128 + signal, if a signal was passed on that ended them. ConfigError, with nothing left running, if
/// the log folder cannot be written or a rank cannot be started. SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGCONT
/// are passed on while it runs; a second SIGINT or SIGTERM, 100 ms or more after the first, kills the ranks.
int launch(const LaunchOptions& options, std::ostream& err);

/// "r0002.log"
std::string log_name(int rank);

}  // namespace trireme::launcher
