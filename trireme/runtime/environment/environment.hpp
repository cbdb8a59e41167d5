#pragma once
// Detects the launcher and the rank of this process: torchrun, srun, mpirun, Kubernetes, `trireme launch`, or none.
#include <string>
#include <vector>

#include "trireme/runtime/environment/variables.hpp"

namespace trireme {

struct Environment {
  std::string
      launcher;  // "torchrun", "trireme launch", "Open MPI", "PMI", "PALS", "srun", "PET", "Kubernetes", "alone"
  int rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1;
  int node_rank = 0, num_nodes = 1;  // guessed with Open MPI and PMI, which do not set it; nothing may depend on it
  int start_local_ranks = 0;         // > 0: not a rank, but the process of a node that must start this many ranks
  std::string master_addr{};         // address of the store; empty: see store_file
  int master_port = 0;
  bool store_is_hosted = false;          // the launcher already listens there: rank 0 connects as a client
  std::string store_file{};              // without an address: a file that all hosts see. Empty too: one rank, no store
  bool store_folder_is_private = false;  // its folder is ours: nobody else may have access to it
  std::string job_id{};                  // keeps ranks of other jobs from joining; may be empty
  int attempt = 0;                       // how often the launcher has restarted the job; the store keeps them apart
  std::string secret{};                  // of the store, TRIREME_SECRET; never printed
  std::string how{};                     // a one-line summary
};

struct EnvironmentFlags {
  std::string master{};         // --master HOST:PORT, or HOST only: port 29500
  std::string store_file{};     // --store-file
  int local_ranks = 0;          // -n; 0: not given
  std::string shared_folder{};  // the run folder, where a store file may be created
};

/// The first launcher that matches, in the order of Note [Which launcher]. ConfigError for an invalid variable.
Environment detect_environment(const Variables& variables, const EnvironmentFlags& flags, int gpus_of_this_host);

/// The names of the launchers' variables that are set. No values, since they may be sensitive.
std::vector<std::string> launcher_variables(const Variables& variables);

/// Parses "HOST:PORT", "[::1]:29500" or "HOST" into `address` and `port`; ConfigError that names `source`.
void parse_address(const std::string& source, const std::string& word, std::string& address, int& port);

/// "tcp://h1:29500", with brackets around an IPv6 address.
std::string store_url(const std::string& address, int port);

}  // namespace trireme
