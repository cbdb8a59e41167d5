#pragma once
// Launches and supervises the ranks of one host; none of them survives the end of the job, however it ended.
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include <unistd.h>

#include "trireme/base/cgroup_facts.hpp"
#include "trireme/runtime/environment/variables.hpp"
#include "trireme/runtime/launcher/signal_relay.hpp"

namespace trireme::launcher {

struct LaunchOptions {
  std::vector<std::string> program;  // argv of a rank; argv[0] is looked up in the PATH of `variables`
  int ranks = 1;                     // on this host
  int num_nodes = 1, node_rank = 0;
  int world_size = 0, first_rank = 0;    // world_size 0: num_nodes x ranks, and first_rank = node_rank x ranks
  std::string master_addr{"127.0.0.1"};  // where the store is already listening
  int master_port = 0;
  std::string job_id{};
  int attempt = 0;                  // TRIREME_ATTEMPT: how often the job was restarted
  int threads = 0;                  // OMP_NUM_THREADS; 0: keep it if set, else usable cores / ranks
  std::string log_folder{};         // rank R logs to rNNNN.log there; empty: no logs
  Variables variables{};            // the base environment
  std::size_t black_box_bytes = 0;  // shared memory per rank, TRIREME_BLACK_BOX_FD; 0: none

  /// The last call of a rank, from its flight record, for the failure report; "": unknown.
  std::function<std::string(const void* black_box)> last_call{};
  /// Whether a rank must not be killed now, by its flight record: a checkpoint is about to be complete.
  std::function<bool(const void* black_box)> is_finishing{};
  /// Called for every rank after all have exited, if the job failed. The record is null if there is none.
  std::function<void(int rank, const void* black_box)> on_stop{};

  int out_fd = STDOUT_FILENO, err_fd = STDERR_FILENO;  // rank 0's output is copied there
  SignalRelay* relay = nullptr;                        // see SupervisorOptions
  int control_fd = -1;                                 // from a parent launcher (Note [Lifelines]); -1: none
  std::function<bool(int code)> drops_logs{};          // whether the caller removes the logs after this exit code
  std::string out_of_memory_advice{};  // follows the report of a rank that was killed for want of memory
  bool saves_on_stop = false;          // the program has StopSignals, as `trireme train` does
  CgroupPlaces cgroup{};
};

/// How a job ended.
struct LaunchEnd {
  int code = 0;
  std::string failure{};        // "rank 1 (pid 7) was killed by signal 9 (SIGKILL)"; empty: nothing failed
  bool stop_was_asked = false;  // by a signal, or by a parent launcher
};

/// Runs until all ranks have exited. `err` gets the first failure, or the reason why the job was stopped. The code is 0
/// if all exited with 0; that of the first that failed, 71 if a signal killed it; if a forwarded signal ended them,
/// their own code (75, 130), else 128 + signal. ConfigError, with nothing left running, if the log folder cannot be
/// written or a rank cannot be started. Forwards kStopSignals, kUserSignals and SIGCONT while it runs; a second SIGINT
/// or SIGTERM, later than kOneRequest, kills the ranks: 137.
LaunchEnd launch(const LaunchOptions& options, std::ostream& err);

/// "r0002.log"
std::string log_name(int rank);

}  // namespace trireme::launcher
