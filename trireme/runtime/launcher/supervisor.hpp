#pragma once
// Process supervisor: starts a group of processes, watches them, forwards signals, and stops all if one fails.
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

#include "trireme/runtime/launcher/rank_process.hpp"
#include "trireme/runtime/launcher/signal_relay.hpp"

namespace trireme::launcher {

/// The channel to a process over which it learns of the end of the job. Note [Lifelines]
enum class Lifeline {
  descriptor,  // its number is in TRIREME_LIFELINE_FD
  standard_input,
};

struct SupervisedProcess {
  std::string program;  // as the user wrote it
  std::vector<std::string> argv;
  Variables variables;
  std::string log_file{};     // empty: none
  bool echo = false;          // copy its output to ours
  std::vector<int> keep{};    // descriptors to pass on
  std::string first_input{};  // comes first through the lifeline; fits into a pipe
};

struct SupervisorOptions {
  Lifeline lifeline = Lifeline::descriptor;
  std::chrono::milliseconds other_cause{200};   // after a "peer lost" exit, wait that long for the exit that caused it
  std::chrono::milliseconds grace{400};         // from the stop request to SIGKILL
  std::chrono::milliseconds cause_grace{3000};  // instead, as long as no exit but "peer lost" has been seen
  /// Whether a process, by its index, does what must not be cut off; asked of those that live. Then, up to:
  std::function<bool(std::size_t member)> is_finishing{};
  std::chrono::milliseconds longest_grace{30'000};
  std::chrono::milliseconds last_patience{10'000};  // with a reader of our output that reads nothing, at the end
  int out_fd = STDOUT_FILENO, err_fd = STDERR_FILENO;
  SignalRelay* relay = nullptr;  // of a caller that lives longer; null: one for this run
  int control_fd = -1;           // the lifeline from a parent launcher; -1: none
  bool saves_on_stop = false;    // the processes have StopSignals: one that is killed by such a signal had not begun
  std::function<void(const std::string&)> warn{};
};

struct ProcessExit {
  pid_t pid = -1;
  int signal = 0;  // 0: it exited with `code`
  int code = 0;
};

struct SupervisorResult {
  int code = 0;                            // exit code of the launcher
  int failed = -1;                         // the process that caused the stop; -1: none failed
  bool stop_was_asked = false;             // by a forwarded signal or through control_fd, whatever came of it
  int stop_signal = 0;                     // forwarded signal that ended the processes; 0: none
  bool killed_by_user = false;             // by a repeated request: nothing was saved
  bool stopped_from_above = false;         // through control_fd
  int stopped = 0;                         // processes still running when the stop was decided
  double stop_seconds = 0;                 // from the first exit or signal to the last exit
  std::vector<ProcessExit> deaths{};       // by member
  std::vector<std::string> last_output{};  // of the member that failed
  std::vector<int> stuck{};                // processes that survived even SIGKILL
};

// Note [Lifelines]
// A pipe to each process whose write end only we hold: EOF means that we are gone, for whatever reason. One byte is one
// request: S stop now, after saving what records you can; if the process is another launcher, also the signals that ssh
// does not forward: I T H 1 2 C.

/// Runs until all processes have exited. ConfigError, with none left running, if one cannot be started.
SupervisorResult supervise(const std::vector<SupervisedProcess>& members, const SupervisorOptions& options);

}  // namespace trireme::launcher
