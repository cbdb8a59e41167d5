#pragma once
// One detector per launcher, used only by environment.cpp: parses its variables; nullopt if it did not start us.
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "trireme/runtime/environment/environment.hpp"
#include "trireme/runtime/environment/variables.hpp"

namespace trireme {

inline constexpr int kMaxWorldSize = 1 << 24;
inline constexpr int kMaxPort = 65'535;
inline constexpr int kDefaultPort = 29'500;  // torch's

struct Asked {
  const Variables& variables;
  const EnvironmentFlags& flags;
  int gpus;

  bool has(const char* name) const { return is_set(variables, name); }
  std::string value(const std::string& name) const { return value_of(variables, name); }
  std::optional<int> number(const std::string& name, int low = 0, int high = kMaxWorldSize) const {
    return number_of(variables, name, low, high);
  }
  /// The first of `names` that is set, as a number; otherwise ConfigError, with `why` it is required.
  int needed(std::initializer_list<const char*> names, int low, int high, const std::string& why) const;
};

std::optional<Environment> from_torchrun(const Asked& asked);  // and from `trireme launch`
std::optional<Environment> from_open_mpi(const Asked& asked);
std::optional<Environment> from_pmi(const Asked& asked);
std::optional<Environment> from_srun(const Asked& asked);
std::optional<Environment> from_pet(const Asked& asked);
std::optional<Environment> from_kubernetes(const Asked& asked);

/// Checks 0 <= index < count, both from variables.
void check_below(const std::string& index_name, int index, const std::string& count_name, int count);

/// Reads MASTER_ADDR and MASTER_PORT, if set; `default_port` if only the first is.
bool take_master_variables(const Asked& asked, Environment& env, int default_port = kDefaultPort);

/// ConfigError if there is more than one process but no address.
void need_master(const Asked& asked, const Environment& env);

/// For launchers that do not number the hosts: ranks in contiguous blocks per host if possible, else round-robin.
void guess_node(Environment& env);

/// Makes the process the only rank of its node, or the launcher of the ranks of its node.
void be_node(Environment& env, int node_rank, int num_nodes, int local_ranks);

}  // namespace trireme
