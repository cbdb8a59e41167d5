#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <system_error>
#include <vector>

#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/fnv.hpp"
#include "trireme/runtime/environment/detect_launcher.hpp"
#include "trireme/runtime/environment/nodelist.hpp"

namespace trireme {
namespace {

/// Step ids from here on are reserved by Slurm: the batch script, the shell of salloc, processes adopted from ssh.
constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;

std::string file_word(std::string word) {
  constexpr const char* kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  for (std::size_t at = 0; (at = word.find_first_not_of(kSafe, at)) != std::string::npos;) word[at] = '_';
  return word.size() <= 100 ? word : text(word.substr(0, 80), "-", fnv1a(word));
}

/// MPI provides no address. The job id is part of the file name, so that the file of an earlier job is never used.
void find_meeting_place(const Asked& asked, Environment& env) {
  if (!asked.value("TRIREME_JOB_ID").empty()) env.job_id = asked.value("TRIREME_JOB_ID");
  const EnvironmentFlags& flags = asked.flags;
  if (env.world_size == 1 || !flags.master.empty() || !flags.store_file.empty()) return;
  if (take_master_variables(asked, env)) return;
  const bool one_host = env.local_world_size == env.world_size;
  env.store_folder_is_private = flags.shared_folder.empty() && one_host;
  const std::string temporary = asked.has("TMPDIR") ? asked.value("TMPDIR") : "/tmp";
  const std::string folder =
      env.store_folder_is_private ? text(temporary, "/trireme-", ::getuid()) : flags.shared_folder;
  require<ConfigError>(!folder.empty() && !env.job_id.empty(), env.launcher, " sets no rendezvous address, and ",
                       folder.empty() ? "there is no folder that all hosts share" : "it sets no job id",
                       "\n  fix: --master HOST:PORT, with the host of rank 0 and a free port on it");
  env.store_file = text(folder, folder.ends_with('/') ? "" : "/", "store-", file_word(env.job_id));
}

int slurm_local_world_size(const Asked& asked, const Environment& env) {
  const std::string name = first_set(asked.variables, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (!name.empty()) {
    const std::vector<int> tasks = expand_tasks_per_node(asked.value(name));
    const bool fits = std::accumulate(tasks.begin(), tasks.end(), std::int64_t{0}) == env.world_size;
    if (fits && env.node_rank < static_cast<int>(tasks.size())) return tasks[static_cast<std::size_t>(env.node_rank)];
    // SLURM_TASKS_PER_NODE may describe the whole job, of which this step is a part.
    require<ConfigError>(name == "SLURM_TASKS_PER_NODE" && asked.has("SLURM_GTIDS"), name, " = \"", asked.value(name),
                         "\": does not give ", env.world_size, " tasks on ", env.num_nodes, " hosts");
  }
  const std::string ids = asked.value("SLURM_GTIDS");  // the ranks of this host: "4,5,6,7"
  require<ConfigError>(!ids.empty(), "srun: neither SLURM_STEP_TASKS_PER_NODE nor SLURM_TASKS_PER_NODE is set");
  return static_cast<int>(std::ranges::count(ids, ',')) + 1;
}

/// Two steps on one host need different ports; below the ephemeral port range.
int slurm_port(const std::string& job, std::int64_t step) {
  return 20'000 + static_cast<int>((fnv1a(job) + static_cast<std::uint64_t>(step)) % 10'000);
}

std::int64_t slurm_step(const std::string& word) {
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), step);
  require<ConfigError>(error == std::errc{} && end == word.data() + word.size() && step >= 0, "SLURM_STEP_ID = \"",
                       word, "\": must be a whole number");
  return step;
}

}  // namespace

std::optional<Environment> from_open_mpi(const Asked& asked) {
  if (!asked.has("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  const std::string why = "OMPI_COMM_WORLD_RANK is set";
  Environment env{.launcher = "Open MPI"};
  env.world_size = asked.needed({"OMPI_COMM_WORLD_SIZE"}, 1, kMaxWorldSize, why);
  env.rank = *asked.number("OMPI_COMM_WORLD_RANK");
  check_below("OMPI_COMM_WORLD_RANK", env.rank, "OMPI_COMM_WORLD_SIZE", env.world_size);
  env.local_rank = asked.needed({"OMPI_COMM_WORLD_LOCAL_RANK"}, 0, kMaxWorldSize, why);
  env.local_world_size = asked.needed({"OMPI_COMM_WORLD_LOCAL_SIZE"}, 1, env.world_size, why);
  check_below("OMPI_COMM_WORLD_LOCAL_RANK", env.local_rank, "OMPI_COMM_WORLD_LOCAL_SIZE", env.local_world_size);
  guess_node(env);  // OMPI_COMM_WORLD_NODE_RANK is the rank within the node, not the node's index
  env.job_id = asked.value(first_set(asked.variables, {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}));
  // Up to version 4 the id has only 16 bits: not unique over a year. This key is random, but secret, so only a hash of
  // it is used in the file name.
  const std::string key = asked.value("OMPI_MCA_orte_precondition_transports");
  if (!env.job_id.empty() && !key.empty()) env.job_id += text("-", std::hex, fnv1a(key));
  find_meeting_place(asked, env);
  return env;
}

std::optional<Environment> from_pmi(const Asked& asked) {
  const bool pals = asked.has("PALS_RANKID");
  const char* rank_name = pals ? "PALS_RANKID" : "PMI_RANK";
  if (!asked.has(rank_name)) return std::nullopt;
  const std::string why = text(rank_name, " is set");
  Environment env{.launcher = pals ? "PALS" : "PMI"};
  env.world_size = asked.needed({"PMI_SIZE"}, 1, kMaxWorldSize, why);
  env.rank = *asked.number(rank_name);
  check_below(rank_name, env.rank, "PMI_SIZE", env.world_size);
  if (env.world_size > 1) {
    env.local_rank = asked.needed(
        {"PALS_LOCAL_RANKID", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK"}, 0, kMaxWorldSize, why);
    env.local_world_size = asked.needed(
        {"PALS_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"}, 1, env.world_size, why);
    check_below("the local rank", env.local_rank, "the number of ranks of this host", env.local_world_size);
  }
  guess_node(env);
  env.job_id = asked.value(first_set(asked.variables, {"PALS_APID", "PMI_JOBID", "PMIX_NAMESPACE"}));
  find_meeting_place(asked, env);
  return env;
}

std::optional<Environment> from_srun(const Asked& asked) {
  if (!asked.has("SLURM_STEP_ID") || !asked.has("SLURM_PROCID")) return std::nullopt;
  const std::int64_t step = slurm_step(asked.value("SLURM_STEP_ID"));
  // In the shell of salloc and in a batch script the job's tasks are known, but not started: one process.
  if (step >= kFirstSpecialStep) return std::nullopt;
  const std::string size_name = first_set(asked.variables, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  if (size_name.empty() || *asked.number(size_name, 1) == 1) return std::nullopt;
  Environment env{.launcher = "srun"};
  env.world_size = *asked.number(size_name, 1);
  env.rank = *asked.number("SLURM_PROCID");
  check_below("SLURM_PROCID", env.rank, size_name, env.world_size);
  const std::string why = "SLURM_STEP_ID and SLURM_PROCID are set";
  env.num_nodes = asked.needed({"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"}, 1, kMaxHosts, why);
  env.node_rank = asked.needed({"SLURM_NODEID"}, 0, kMaxHosts, why);
  check_below("SLURM_NODEID", env.node_rank, "the number of nodes", env.num_nodes);
  env.local_rank = asked.needed({"SLURM_LOCALID"}, 0, kMaxWorldSize, why);
  env.local_world_size = slurm_local_world_size(asked, env);
  check_below("SLURM_LOCALID", env.local_rank, "the number of tasks of this host", env.local_world_size);

  const std::string job = asked.value(first_set(asked.variables, {"SLURM_JOB_ID", "SLURM_JOBID"}));
  env.job_id = text(job, ".", step);
  const int port = asked.number("MASTER_PORT", 1, kMaxPort).value_or(slurm_port(job, step));
  if (take_master_variables(asked, env, port)) return env;
  const std::string list = first_set(asked.variables, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  env.master_port = port;
  if (env.num_nodes == 1) {
    env.master_addr = "127.0.0.1";
  } else if (!list.empty()) {
    env.master_addr = expand_nodelist(asked.value(list)).front();
  }
  need_master(asked, env);
  return env;
}

}  // namespace trireme
