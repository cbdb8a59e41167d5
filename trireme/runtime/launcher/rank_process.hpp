#pragma once
// Starting a process that cannot outlive us, from a program that may have threads.
#include <string>
#include <vector>

#include <signal.h>
#include <sys/types.h>

#include "trireme/runtime/launcher/owned_fd.hpp"
#include "trireme/runtime/rank/variables.hpp"

namespace trireme::launcher {

struct Pipe {
  OwnedFd read, write;
};
/// Both ends close on exec and are above 2, so that they never stand where a child's own three will be put.
Pipe make_pipe();

/// `fd`, moved above 2 if it is not; ConfigError that names `what` if it is none (errno says why).
OwnedFd above_stdio(OwnedFd fd, const char* what);

struct ProcessPlan {
  std::string path;  // of the program, as execve wants it
  std::vector<std::string> argv;
  Variables variables;
  int stdin_fd = -1;        // -1: /dev/null
  int stdout_fd = -1;       // -1: as ours
  int stderr_fd = -1;       // -1: as ours
  std::vector<int> keep{};  // descriptors that it gets under the same numbers; all others are closed
};

/// `program` as a shell finds it along `path` (PATH). ConfigError "cannot start PROGRAM: ..." if there is none.
std::string find_program(const std::string& program, const std::string& path);

/// In a process group of its own, with the signal mask `mask`, killed when the calling thread ends. Returns once the
/// program runs; ConfigError "cannot start PROGRAM: ..." if it cannot.
pid_t start_process(const ProcessPlan& plan, const sigset_t& mask);

}  // namespace trireme::launcher
