#pragma once
// Processes that live and die together: started, watched, told of signals, and stopped when one of them fails.
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

#include "trireme/runtime/launcher/rank_process.hpp"

namespace trireme::launcher {

/// How we speak to a process and how it is told of the end of the job. Note [Lifelines]
enum class Lifeline {
  descriptor,  // its number is in TRIREME_LIFELINE_FD
  standard_input,
};

struct SupervisedProcess {
  std::string program;  // as the user wrote it
  std::vector<std::string> argv;
  Variables variables;
  std::string log_file{};   // empty: none
  bool echo = false;        // its output goes to ours as well
  std::vector<int> keep{};  // descriptors to hand over
};

struct SupervisorOptions {
  Lifeline lifeline = Lifeline::descriptor;
  std::chrono::milliseconds other_cause{200};  // a death by "peer lost" waits that long for the death that caused it
  std::chrono::milliseconds grace{400};        // from the request to stop to SIGKILL
  int out_fd = STDOUT_FILENO, err_fd = STDERR_FILENO;
  int control_fd = -1;  // the lifeline from a launcher above us; -1: there is none
  std::function<void(const std::string&)> warn{};
};

struct ProcessExit {
  pid_t pid = -1;
  int signal = 0;  // 0: it exited with `code`
  int code = 0;
};

struct SupervisorResult {
  int code = 0;                            // what the launcher exits with
  int failed = -1;                         // the member whose death decided; -1: none failed
  int stop_signal = 0;                     // passed on, and the members ended by it; 0: none
  bool stopped_from_above = false;         // by control_fd
  int stopped = 0;                         // members that lived when it was decided to stop
  double stop_seconds = 0;                 // from the first death or signal to the last
  std::vector<ProcessExit> deaths{};       // by member
  std::vector<std::string> last_output{};  // of the member that failed
  std::vector<int> stuck{};                // members that even SIGKILL did not end
};

// Note [Lifelines]
// A pipe to each process, of which only we hold the writing end: its end means that we are gone, however that came. One
// byte is one request: S stop now, leaving what records you can; where the process is another launcher, also the
// signals that ssh does not carry: I T H 1 2 C.

/// Runs them until all are gone. ConfigError, with none left behind, if one cannot be started.
SupervisorResult supervise(const std::vector<SupervisedProcess>& members, const SupervisorOptions& options);

}  // namespace trireme::launcher
