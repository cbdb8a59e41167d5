#pragma once
// Launches a job on several hosts: runs `trireme launch` on each of them through ssh.
#include <iosfwd>
#include <string>
#include <vector>

#include <unistd.h>

#include "trireme/runtime/environment/variables.hpp"
#include "trireme/runtime/launcher/hostfile.hpp"
#include "trireme/runtime/launcher/launch.hpp"

namespace trireme::launcher {

struct HostsOptions {
  std::vector<Host> hosts;           // node 0 first: it hosts the store
  std::vector<std::string> program;  // argv of a rank
  std::string trireme;               // path of the `trireme` program on the hosts
  std::string folder;                // working directory on all hosts
  int master_port = 29'500;
  std::string master_addr{};  // empty: the name of the first host
  std::string job_id{};       // passed to the hosts as TRIREME_JOB_ID
  std::string secret{};  // of the store; passed as TRIREME_SECRET through standard input, which nobody else can read
  std::vector<std::string> launch_words{};                              // more `trireme launch` arguments, before --
  std::vector<std::string> remote_shell{"ssh", "-o", "BatchMode=yes"};  // followed by the host and one command
  std::string this_host{};                                              // empty: from the system
  Variables variables{};                                                // ours; some are passed to the hosts, see below
  int out_fd = STDOUT_FILENO, err_fd = STDERR_FILENO;                   // output of all hosts
  SignalRelay* relay = nullptr;                                         // see SupervisorOptions
};

/// `word` quoted for a POSIX shell.
std::string shell_quoted(const std::string& word);

/// Whether `name` is this host, so that no ssh is needed.
bool is_this_host(const std::string& name, const std::string& this_host);

/// Variables that ssh does not forward and a rank may need: NCCL_*, GLOO_*, TORCH_*, CUDA_*, OMP_*, LD_LIBRARY_PATH,
/// PYTHONPATH, and our own. No others: every user of a host can read a command line.
Variables variables_for_hosts(const Variables& variables);

/// The command for host `node`: `cd FOLDER && exec env ... TRIREME launch -n SLOTS --nnodes M --node-rank R
/// --world-size W --first-rank F --master H:P --control-stdin ... -- PROGRAM`. With a secret it first reads a line.
std::string host_command(const HostsOptions& options, int node);

/// Runs until all hosts are done. The first that fails stops the others. Signals are forwarded. The code is that
/// of the host that failed first (71 if it cannot be reached), as with launch().
LaunchEnd launch_over_hosts(const HostsOptions& options, std::ostream& err);

}  // namespace trireme::launcher
