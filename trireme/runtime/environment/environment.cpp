#include "trireme/runtime/environment/environment.hpp"

#include <array>
#include <cstddef>

#include "trireme/base/error.hpp"
#include "trireme/runtime/environment/detect_launcher.hpp"

// Note [Which launcher]
// Launchers nest (torchrun or mpirun inside srun is common), and the inner one sets its variables last. So the inner
// ones are checked first: RANK + WORLD_SIZE + LOCAL_RANK (torchrun, `trireme launch`), OMPI_*, PMI_*/PALS_*, a Slurm
// step, PET_* (torchrun's own options, set for a pod), RANK + WORLD_SIZE only (pods again: not ranks), none.

namespace trireme {
namespace {

constexpr std::array kLauncherVariables = {"RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "LOCAL_WORLD_SIZE",
                                           "GROUP_RANK",
                                           "GROUP_WORLD_SIZE",
                                           "NODE_RANK",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "TORCHELASTIC_RUN_ID",
                                           "TORCHELASTIC_USE_AGENT_STORE",
                                           "TRIREME_LAUNCH",
                                           "TORCHELASTIC_RESTART_COUNT",
                                           "TRIREME_JOB_ID",
                                           "TRIREME_ATTEMPT",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "OMPI_MCA_ess_base_jobid",
                                           "PMIX_NAMESPACE",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "PMI_JOBID",
                                           "PMI_LOCAL_RANK",
                                           "PMI_LOCAL_SIZE",
                                           "MPI_LOCALRANKID",
                                           "MPI_LOCALNRANKS",
                                           "MV2_COMM_WORLD_LOCAL_RANK",
                                           "MV2_COMM_WORLD_LOCAL_SIZE",
                                           "PALS_RANKID",
                                           "PALS_LOCAL_RANKID",
                                           "PALS_LOCAL_SIZE",
                                           "PALS_APID",
                                           "SLURM_JOB_ID",
                                           "SLURM_STEP_ID",
                                           "SLURM_PROCID",
                                           "SLURM_LOCALID",
                                           "SLURM_NODEID",
                                           "SLURM_NTASKS",
                                           "SLURM_NNODES",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_STEP_NUM_NODES",
                                           "SLURM_STEP_NODELIST",
                                           "SLURM_JOB_NODELIST",
                                           "SLURM_STEP_TASKS_PER_NODE",
                                           "SLURM_TASKS_PER_NODE",
                                           "SLURM_GTIDS",
                                           "PET_NNODES",
                                           "PET_NPROC_PER_NODE",
                                           "PET_NODE_RANK",
                                           "PET_MASTER_ADDR",
                                           "PET_MASTER_PORT",
                                           "PET_RDZV_ENDPOINT",
                                           "PET_RDZV_ID",
                                           "JOB_COMPLETION_INDEX"};

/// `srun --mpi=pmi2` also sets PMI's variables. If both agree, Slurm's are more informative: they name the hosts. Under
/// another MPI's mpirun they differ: srun then started its daemons, not the ranks.
bool pmi_is_sruns(const Asked& asked) {
  const std::string size = first_set(asked.variables, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  return asked.has("SLURM_STEP_ID") && asked.value("PMI_RANK") == asked.value("SLURM_PROCID") &&
         asked.value("PMI_SIZE") == asked.value(size);
}

Environment first_match(const Asked& asked) {
  if (const auto env = from_torchrun(asked)) return *env;
  if (const auto env = from_open_mpi(asked)) return *env;
  if (const auto env = pmi_is_sruns(asked) ? std::nullopt : from_pmi(asked)) return *env;
  if (const auto env = from_srun(asked)) return *env;
  if (const auto env = from_pet(asked)) return *env;
  if (const auto env = from_kubernetes(asked)) return *env;
  Environment alone{.launcher = "alone"};
  be_node(alone, 0, 1, asked.flags.local_ranks > 1 ? asked.flags.local_ranks : 1);
  return alone;
}

void apply_store_flags(const EnvironmentFlags& flags, Environment& env) {
  require<ConfigError>(flags.master.empty() || flags.store_file.empty(), "--master = ", flags.master,
                       " and --store-file = ", flags.store_file,
                       ": there is only one rendezvous\n  fix: give one of them");
  if (!flags.store_file.empty()) {
    env.store_file = flags.store_file;
    env.store_folder_is_private = false;
    env.master_addr.clear();
    env.master_port = 0;
    env.store_is_hosted = false;
  } else if (!flags.master.empty()) {
    const std::string before = store_url(env.master_addr, env.master_port);
    parse_address("--master", flags.master, env.master_addr, env.master_port);
    env.store_file.clear();
    env.store_is_hosted = env.store_is_hosted && before == store_url(env.master_addr, env.master_port);
  }
}

/// -n under a launcher: with one process per host (`srun --ntasks-per-node=1 trireme launch -n 8`) each represents its
/// host; otherwise the ranks already exist.
void apply_local_ranks(const EnvironmentFlags& flags, Environment& env) {
  const bool pods = env.launcher == "PET" || env.launcher == "Kubernetes" || env.launcher == "alone";
  // Our own launcher starts the ranks with its own command line.
  const bool own = env.launcher == "trireme launch" && flags.local_ranks == env.local_world_size;
  if (pods || own || flags.local_ranks == 0) return;
  const bool one_a_host = env.local_world_size == 1 && env.launcher != "torchrun" && env.launcher != "trireme launch";
  require<ConfigError>(one_a_host, "-n ", flags.local_ranks, ": ", env.launcher, " started ", env.local_world_size,
                       " rank", env.local_world_size == 1 ? "" : "s", " on this host already\n  fix: leave out -n ",
                       flags.local_ranks, " after trireme");
  if (flags.local_ranks > 1) be_node(env, env.rank, env.world_size, flags.local_ranks);
}

std::string describe(const Environment& env) {
  std::string how = env.launcher + ": ";
  const std::string node = text("node ", env.node_rank, " of ", env.num_nodes);
  if (env.start_local_ranks > 0) {
    how += text(node, ", starts ", env.start_local_ranks, env.start_local_ranks == 1 ? " rank" : " ranks");
  } else {
    how += text("rank ", env.rank, " of ", env.world_size, ", local rank ", env.local_rank, " of ",
                env.local_world_size, ", ", node);
  }
  if (!env.store_file.empty()) return text(how, ", store file ", env.store_file);
  if (env.master_addr.empty()) return how;
  how += ", store " + store_url(env.master_addr, env.master_port);
  if (!env.store_is_hosted) return how;
  return how + (env.launcher == "torchrun" ? " (hosted by the agent)" : " (hosted by the launcher)");
}

}  // namespace

Environment detect_environment(const Variables& variables, const EnvironmentFlags& flags, int gpus_of_this_host) {
  require<ConfigError>(flags.local_ranks >= 0, "-n ", flags.local_ranks, ": must be at least 1");
  Environment env = first_match({variables, flags, gpus_of_this_host});
  if (is_set(variables, "TRIREME_JOB_ID")) env.job_id = value_of(variables, "TRIREME_JOB_ID");
  env.secret = value_of(variables, "TRIREME_SECRET");
  apply_store_flags(flags, env);
  apply_local_ranks(flags, env);
  // Ranks started per node connect through the node's launcher, which needs an address of node 0.
  require<ConfigError>(env.start_local_ranks == 0 || env.num_nodes == 1 || !env.master_addr.empty(), env.launcher, ": ",
                       env.num_nodes, " nodes, and no address of the first\n  fix: --master HOST:PORT");
  env.how = describe(env);
  return env;
}

std::vector<std::string> launcher_variables(const Variables& variables) {
  std::vector<std::string> seen;
  for (const char* name : kLauncherVariables)
    if (is_set(variables, name)) seen.emplace_back(name);
  return seen;
}

void parse_address(const std::string& source, const std::string& word, std::string& address, int& port) {
  const bool bracketed = word.starts_with('[');
  const std::size_t end = word.find(bracketed ? ']' : ':');
  const std::string rest = end == std::string::npos ? "" : word.substr(end + (bracketed ? 1 : 0));
  address = bracketed ? word.substr(1, end - 1) : word.substr(0, end);
  const bool fine = !address.empty() && address.find_first_of(" \t/@[]") == std::string::npos &&
                    (rest.empty() || (rest[0] == ':' && rest.find(':', 1) == std::string::npos)) &&
                    (!bracketed || end != std::string::npos);
  require<ConfigError>(fine, source, " = \"", word, "\": must be HOST:PORT, with an IPv6 address in brackets");
  port = rest.empty() ? kDefaultPort : strict_number(source + ", port", rest.substr(1), 1, kMaxPort);
}

std::string store_url(const std::string& address, int port) {
  const bool ipv6 = address.find(':') != std::string::npos;
  return text("tcp://", ipv6 ? "[" : "", address, ipv6 ? "]" : "", ":", port);
}

}  // namespace trireme
