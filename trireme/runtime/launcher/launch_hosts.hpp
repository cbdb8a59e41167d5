#pragma once
// A job over several hosts: `trireme launch` on each of them, through ssh.
#include <iosfwd>
#include <string>
#include <vector>

#include <unistd.h>

#include "trireme/runtime/launcher/hostfile.hpp"
#include "trireme/runtime/rank/variables.hpp"

namespace trireme::launcher {

struct HostsOptions {
  std::vector<Host> hosts;           // node 0 first: it hosts the store
  std::vector<std::string> program;  // the words of a rank
  std::string trireme;               // the program `trireme`, as the hosts find it
  std::string folder;                // to run in, on all hosts
  int master_port = 29'500;
  std::string master_addr{};                                            // empty: the name of the first host
  std::string job_id{};                                                 // to the hosts as TRIREME_JOB_ID
  std::vector<std::string> launch_words{};                              // more words for `trireme launch`, before --
  std::vector<std::string> remote_shell{"ssh", "-o", "BatchMode=yes"};  // then come the host and one command
  std::string this_host{};                                              // empty: as the system says
  Variables variables{};                                                // ours; some go to the hosts, below
  int out_fd = STDOUT_FILENO, err_fd = STDERR_FILENO;                   // all hosts print there
};

/// `word` as a POSIX shell reads it back.
std::string shell_quoted(const std::string& word);

/// Whether `name` is this host, so that no ssh is needed.
bool is_this_host(const std::string& name, const std::string& this_host);

/// What ssh does not carry and a rank may need: NCCL_*, GLOO_*, TORCH_*, CUDA_*, OMP_*, LD_LIBRARY_PATH, PYTHONPATH,
/// and our own. No others: a command line can be read by every user of a host.
Variables variables_for_hosts(const Variables& variables);

/// The command for host `node`: `cd FOLDER && exec env ... TRIREME launch -n SLOTS --nnodes M --node-rank R
/// --world-size W --first-rank F --master H:P --control-stdin ... -- PROGRAM`.
std::string host_command(const HostsOptions& options, int node);

/// Runs until all hosts are done. The first that fails stops the others. Signals are passed on. The exit code is the
/// one of the host that failed first (71 if it cannot be reached), as with launch().
int launch_over_hosts(const HostsOptions& options, std::ostream& err);

}  // namespace trireme::launcher
