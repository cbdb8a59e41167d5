#pragma once
// Starts a child process that cannot outlive us, safely from a multi-threaded program.
#include <string>
#include <vector>

#include <signal.h>
#include <sys/types.h>

#include "trireme/base/owned_fd.hpp"
#include "trireme/runtime/environment/variables.hpp"

namespace trireme::launcher {

struct Pipe {
  OwnedFd read, write;
};
/// Both ends are close-on-exec and above 2, so that they never collide with a child's stdin, stdout and stderr.
Pipe make_pipe();

/// `fd`, duplicated above 2 if necessary; ConfigError that names `what` if it is invalid (reason from errno).
OwnedFd above_stdio(OwnedFd fd, const char* what);

struct ProcessPlan {
  std::string path;  // of the program, for execve
  std::vector<std::string> argv;
  Variables variables;
  int stdin_fd = -1;        // -1: /dev/null
  int stdout_fd = -1;       // -1: inherit ours
  int stderr_fd = -1;       // -1: inherit ours
  std::vector<int> keep{};  // descriptors inherited under the same numbers; all others are closed
};

/// Looks up `program` in `path` (PATH) as a shell does. ConfigError "cannot start PROGRAM: ..." if not found.
std::string find_program(const std::string& program, const std::string& path);

/// Starts it in its own process group, with the signal mask `mask`; it is killed when the calling thread exits. Returns
/// after a successful exec; otherwise ConfigError "cannot start PROGRAM: ...".
pid_t start_process(const ProcessPlan& plan, const sigset_t& mask);

}  // namespace trireme::launcher
