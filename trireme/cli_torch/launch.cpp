// `trireme launch`: the launcher hosts the store.
#include <chrono>
#include <ctime>
#include <filesystem>
#include <optional>
#include <sstream>

#include <unistd.h>

#include "trireme/base/sha256.hpp"
#include "trireme/base/stop_signals.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/runtime/launcher/job.hpp"
#include "trireme/runtime/launcher/launch_hosts.hpp"
#include "trireme/runtime/launcher/restarts.hpp"
#include "trireme/runtime/rank/rank_main.hpp"

namespace trireme::cli {
namespace {

constexpr int kDefaultPort = 29500;

/// A new folder for every launch, so that earlier ones are never overwritten.
std::string fresh_run_folder() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &utc);
  return text("runs/launch-", stamp, "-", getpid());
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  return all;
}

void check(const LaunchCommand& c) {
  require<ConfigError>(!c.program.empty(),
                       "launch: no program was given\n  fix: trireme launch -n 4 -- PROGRAM ARGUMENTS");
  require<ConfigError>(c.hostfile.empty() || c.num_nodes == 1, "launch: --hostfile and --nnodes ", c.num_nodes,
                       " both name the hosts\n  fix: give one of them");
  require<ConfigError>(!c.hostfile.empty() || c.ranks >= 1, "launch: -n ", c.ranks,
                       ": at least one rank must be started on this host");
  require<ConfigError>(c.num_nodes >= 1 && c.node_rank >= 0 && c.node_rank < c.num_nodes, "launch: --node-rank ",
                       c.node_rank, " of ", c.num_nodes, " nodes: must be from 0 to --nnodes - 1");
  require<ConfigError>(
      c.num_nodes == 1 || !c.master.empty(), "launch: --nnodes ", c.num_nodes,
      " needs a rendezvous address\n  fix: --master HOST:PORT, an address of node 0 that all nodes reach");
}

int launch_from_hostfile(const LaunchCommand& c, std::ostream& err) {
  launcher::HostsOptions options;
  options.hosts = launcher::read_hostfile(c.hostfile, c.ranks);
  options.program = c.program;
  options.trireme = std::filesystem::read_symlink("/proc/self/exe");
  options.folder = std::filesystem::current_path();
  options.master_port = kDefaultPort;
  if (!c.master.empty()) parse_address("--master", c.master, options.master_addr, options.master_port);
  options.remote_shell = words_of(c.ssh);
  options.variables = process_variables();
  options.variables["TRIREME_START_ID"] = hex_digits(random_bytes(16));
  // Set, and empty: the user wants an open store, for programs that cannot give a secret.
  const auto given = options.variables.find("TRIREME_SECRET");
  options.secret = given == options.variables.end() ? hex_digits(random_bytes(32)) : given->second;
  const std::string job = text(options.hosts.front().name, "-", getpid(), "-", std::time(nullptr));
  const std::string first_logs = c.logs.empty() ? fresh_run_folder() + "/ranks" : c.logs;
  const auto logs = [&](int attempt) { return launcher::attempt_folder(first_logs, attempt); };
  const auto run = [&](int attempt, std::optional<launcher::SignalRelay>& relay) -> launcher::AttemptEnd {
    options.job_id = text(job, "-", attempt);
    options.launch_words = {"--logs", logs(attempt), "--attempt", std::to_string(attempt)};
    if (c.threads > 0)
      options.launch_words.insert(options.launch_words.end(), {"--threads", std::to_string(c.threads)});
    if (!relay) relay.emplace();
    options.relay = &*relay;
    return {launcher::launch_over_hosts(options, err), std::nullopt};  // the flight records are on the hosts
  };
  return launcher::run_with_restarts({.most = c.max_restarts, .logs = logs}, err, run);
}

}  // namespace

int run_launch(const LaunchCommand& c, Console& console) {
  const StopSignals signals(StopSignals::Then::leave);
  check(c);
  if (!c.hostfile.empty()) return launch_from_hostfile(c, console.err);
  launcher::Job job{.program = c.program, .variables = process_variables(), .ranks = c.ranks};
  job.num_nodes = c.num_nodes;
  job.node_rank = c.node_rank;
  job.world_size = c.world_size;
  job.first_rank = c.first_rank;
  job.threads = c.threads;
  job.max_restarts = c.max_restarts;
  job.first_attempt = c.attempt;
  job.log_folder = c.logs;
  if (c.logs.empty()) {
    const std::string run = fresh_run_folder();
    job.log_folder = run + "/ranks";
    job.hang_folder = run + "/hang";
  }
  if (c.control_stdin) {  // started by the launcher of a job over hosts
    job.control_fd = STDIN_FILENO;
    job.start_id = value_of(job.variables, "TRIREME_START_ID");
  }
  if (!c.master.empty()) parse_address("--master", c.master, job.master_addr, job.master_port);
  return launcher::run_job(job, console.err);
}

}  // namespace trireme::cli
