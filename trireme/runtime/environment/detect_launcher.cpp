#include "trireme/runtime/environment/detect_launcher.hpp"

#include <algorithm>
#include <cstddef>
#include <thread>

#include "trireme/base/error.hpp"
#include "trireme/runtime/environment/nodelist.hpp"

namespace trireme {
namespace {

int pet_local_ranks(const Asked& asked) {
  if (asked.flags.local_ranks > 0) return asked.flags.local_ranks;
  const std::string word = asked.value("PET_NPROC_PER_NODE");
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (word.empty()) return 1;
  if (word == "cpu") return cores;
  if (word == "auto") return asked.gpus > 0 ? asked.gpus : cores;
  if (word == "gpu") {
    require<ConfigError>(asked.gpus > 0, "PET_NPROC_PER_NODE = \"gpu\": this host has no GPU");
    return asked.gpus;
  }
  return strict_number("PET_NPROC_PER_NODE", word, 1, kMaxWorldSize);
}

int pet_num_nodes(const Asked& asked) {
  const std::string word = asked.value("PET_NNODES");
  const std::size_t colon = word.find(':');
  if (word.empty()) return 1;
  if (colon == std::string::npos) return strict_number("PET_NNODES", word, 1, kMaxHosts);
  const int low = strict_number("PET_NNODES", word.substr(0, colon), 1, kMaxHosts);
  const int high = strict_number("PET_NNODES", word.substr(colon + 1), 1, kMaxHosts);
  require<ConfigError>(low == high, "PET_NNODES = \"", word,
                       "\": a job whose number of nodes may change is not supported\n  fix: one number");
  return low;
}

}  // namespace

int Asked::needed(std::initializer_list<const char*> names, int low, int high, const std::string& why) const {
  const std::string name = first_set(variables, names);
  if (!name.empty()) return *number(name, low, high);
  std::string list;
  for (const char* each : names) list += text(list.empty() ? "" : ", ", each);
  throw ConfigError(text(why, ", but ", names.size() > 1 ? "none of " : "not ", list));
}

void check_below(const std::string& index_name, int index, const std::string& count_name, int count) {
  require<ConfigError>(index < count, index_name, " = ", index, ": must be below ", count_name, " = ", count);
}

void guess_node(Environment& env) {
  env.num_nodes = (env.world_size + env.local_world_size - 1) / env.local_world_size;
  const int first = env.rank - env.local_rank;
  const bool blocks = first >= 0 && first % env.local_world_size == 0;
  env.node_rank = blocks ? first / env.local_world_size : env.rank % env.num_nodes;
}

bool take_master_variables(const Asked& asked, Environment& env, int default_port) {
  if (!asked.has("MASTER_ADDR")) return false;
  env.master_addr = asked.value("MASTER_ADDR");
  env.master_port = asked.number("MASTER_PORT", 1, kMaxPort).value_or(default_port);
  return true;
}

void need_master(const Asked& asked, const Environment& env) {
  const bool known = !env.master_addr.empty() || !asked.flags.master.empty() || !asked.flags.store_file.empty();
  require<ConfigError>(known || std::max(env.world_size, env.num_nodes) == 1, env.launcher,
                       ": MASTER_ADDR is not set, so the ranks cannot find each other\n  fix: --master HOST:PORT");
}

void be_node(Environment& env, int node_rank, int num_nodes, int local_ranks) {
  env.node_rank = node_rank;
  env.num_nodes = num_nodes;
  env.rank = local_ranks == 1 ? node_rank : 0;
  env.world_size = local_ranks == 1 ? num_nodes : 1;
  env.local_rank = 0;
  env.local_world_size = 1;
  env.start_local_ranks = local_ranks == 1 ? 0 : local_ranks;
}

std::optional<Environment> from_torchrun(const Asked& asked) {
  if (!asked.has("RANK") || !asked.has("WORLD_SIZE") || !asked.has("LOCAL_RANK")) return std::nullopt;
  Environment env{.launcher = asked.value("TRIREME_LAUNCH") == "1" ? "trireme launch" : "torchrun"};
  env.world_size = *asked.number("WORLD_SIZE", 1);
  env.rank = *asked.number("RANK");
  check_below("RANK", env.rank, "WORLD_SIZE", env.world_size);
  env.local_rank = *asked.number("LOCAL_RANK");
  // Started by hand on one host, LOCAL_WORLD_SIZE is easily forgotten; with several hosts it cannot be guessed.
  require<ConfigError>(asked.has("LOCAL_WORLD_SIZE") || env.rank == env.local_rank, "RANK = ", env.rank,
                       " and LOCAL_RANK = ", env.local_rank, " differ, so LOCAL_WORLD_SIZE must be set too");
  env.local_world_size = asked.number("LOCAL_WORLD_SIZE", 1).value_or(env.world_size);
  require<ConfigError>(env.local_world_size <= env.world_size, "LOCAL_WORLD_SIZE = ", env.local_world_size,
                       ": must be at most WORLD_SIZE = ", env.world_size);
  check_below("LOCAL_RANK", env.local_rank, "LOCAL_WORLD_SIZE", env.local_world_size);
  guess_node(env);
  env.num_nodes = asked.number("GROUP_WORLD_SIZE", 1).value_or(env.num_nodes);
  const std::string node = first_set(asked.variables, {"GROUP_RANK", "NODE_RANK"});
  if (!node.empty()) {
    env.node_rank = *asked.number(node);
    check_below(node, env.node_rank, "the number of nodes", env.num_nodes);
  }
  take_master_variables(asked, env);
  need_master(asked, env);
  const std::string hosted = asked.value("TORCHELASTIC_USE_AGENT_STORE");
  env.store_is_hosted = hosted == "True" || hosted == "true" || hosted == "1";
  const bool ours = env.launcher == "trireme launch";
  env.attempt = asked.number(ours ? "TRIREME_ATTEMPT" : "TORCHELASTIC_RESTART_COUNT").value_or(0);
  if (asked.value("TORCHELASTIC_RUN_ID") != "none") env.job_id = asked.value("TORCHELASTIC_RUN_ID");
  return env;
}

std::optional<Environment> from_pet(const Asked& asked) {
  if (first_set(asked.variables, {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK"}).empty()) return std::nullopt;
  Environment env{.launcher = "PET"};
  const int num_nodes = pet_num_nodes(asked);
  int node_rank = 0;
  if (num_nodes > 1) {
    node_rank =
        asked.needed({"PET_NODE_RANK", "JOB_COMPLETION_INDEX", "RANK"}, 0, kMaxHosts, text("PET_NNODES = ", num_nodes));
    check_below("PET_NODE_RANK", node_rank, "PET_NNODES", num_nodes);
  }
  be_node(env, node_rank, num_nodes, pet_local_ranks(asked));
  env.job_id = asked.value("PET_RDZV_ID");
  if (asked.has("PET_MASTER_ADDR")) {
    env.master_addr = asked.value("PET_MASTER_ADDR");
    env.master_port = asked.number("PET_MASTER_PORT", 1, kMaxPort).value_or(kDefaultPort);
  } else if (asked.has("PET_RDZV_ENDPOINT")) {
    parse_address("PET_RDZV_ENDPOINT", asked.value("PET_RDZV_ENDPOINT"), env.master_addr, env.master_port);
  } else {
    take_master_variables(asked, env);
  }
  need_master(asked, env);
  return env;
}

std::optional<Environment> from_kubernetes(const Asked& asked) {
  if (!asked.has("RANK") || !asked.has("WORLD_SIZE")) return std::nullopt;
  Environment env{.launcher = "Kubernetes"};
  const int pods = *asked.number("WORLD_SIZE", 1, kMaxHosts), pod = *asked.number("RANK");
  check_below("RANK", pod, "WORLD_SIZE", pods);
  be_node(env, pod, pods, asked.flags.local_ranks > 0 ? asked.flags.local_ranks : std::max(1, asked.gpus));
  take_master_variables(asked, env);
  need_master(asked, env);
  return env;
}

}  // namespace trireme
