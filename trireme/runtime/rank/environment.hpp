#pragma once
// Who started this process, and as which rank: torchrun, srun, mpirun, Kubernetes, `trireme launch`, or nobody.
#include <string>
#include <vector>

#include "trireme/runtime/rank/variables.hpp"

namespace trireme {

struct Environment {
  std::string
      launcher;  // "torchrun", "trireme launch", "Open MPI", "PMI", "PALS", "srun", "PET", "Kubernetes", "alone"
  int rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1;
  int node_rank = 0, num_nodes = 1;  // with Open MPI and PMI a guess: they do not say; nothing may depend on it
  int start_local_ranks = 0;         // > 0: the process stands for a node and must start that many; it is no rank
  std::string master_addr{};         // where the store is or will be; empty: see store_file
  int master_port = 0;
  bool store_is_hosted = false;  // the launcher listens there already: rank 0 connects as a client
  std::string store_file{};      // where no address is known: a file that all hosts see. Empty too: one rank, no store
  std::string job_id{};          // ranks of another job must not join; may be empty
  std::string how{};             // all that in one line
};

struct EnvironmentFlags {
  std::string master{};         // --master HOST:PORT, or HOST alone: port 29500
  std::string store_file{};     // --store-file
  int local_ranks = 0;          // -n; 0: not given
  std::string shared_folder{};  // the run folder, where a store file may be put
};

/// The first that matches, in the order of Note [Which launcher]. ConfigError for a variable that cannot be right.
Environment detect_environment(const Variables& variables, const EnvironmentFlags& flags, int gpus_of_this_host);

/// The names of the launchers' variables that are set. No values: they may be anything.
std::vector<std::string> launcher_variables(const Variables& variables);

/// "HOST:PORT", "[::1]:29500" or "HOST" into `address` and `port`; ConfigError that names `source`.
void parse_address(const std::string& source, const std::string& word, std::string& address, int& port);

/// "tcp://h1:29500", with brackets around an IPv6 address.
std::string store_url(const std::string& address, int port);

}  // namespace trireme
