#include "trireme/runtime/launcher/launch_hosts.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <ostream>

#include "trireme/base/error.hpp"
#include "trireme/runtime/environment/environment.hpp"
#include "trireme/runtime/launcher/supervisor.hpp"
#include "trireme/runtime/launcher/supervisor_report.hpp"

namespace trireme::launcher {
namespace {

constexpr int kSshFailed = 255;

std::string system_host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::string this_host_of(const HostsOptions& options) {
  return options.this_host.empty() ? system_host_name() : options.this_host;
}

std::string without_user(const std::string& host) { return host.substr(host.find('@') + 1); }  // npos + 1 is 0

/// The name of the first host as seen from other hosts, for which "localhost" would be themselves.
std::string master_of(const HostsOptions& options) {
  if (!options.master_addr.empty()) return options.master_addr;
  const std::string first = without_user(options.hosts[0].name);
  const bool needs_a_name = options.hosts.size() > 1 && is_this_host(first, this_host_of(options));
  return needs_a_name ? this_host_of(options) : first;
}

SupervisedProcess host_member(const HostsOptions& options, int node) {
  const std::string& host = options.hosts[static_cast<std::size_t>(node)].name;
  const std::string command = host_command(options, node);
  std::vector<std::string> argv{"sh", "-c", command};
  if (!is_this_host(host, this_host_of(options))) {
    argv = options.remote_shell;
    argv.insert(argv.end(), {host, command});
  }
  return {.program = argv[0],
          .argv = argv,
          .variables = options.variables,
          .echo = true,
          .first_input = options.secret.empty() ? "" : options.secret + "\n"};
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

bool is_this_host(const std::string& name, const std::string& this_host) {
  const auto short_name = [](const std::string& host) { return host.substr(0, host.find('.')); };
  if (name == "localhost" || name == "127.0.0.1" || name == "::1" || name == this_host) return true;
  const bool both_long = name.find('.') != std::string::npos && this_host.find('.') != std::string::npos;
  return !both_long && short_name(name) == short_name(this_host);
}

Variables variables_for_hosts(const Variables& variables) {
  Variables chosen;
  for (const auto& [name, value] : variables) {
    bool wanted = name == "LD_LIBRARY_PATH" || name == "PYTHONPATH";
    for (const char* prefix : {"NCCL_", "GLOO_", "TORCH_", "CUDA_", "OMP_", "TRIREME_"})
      wanted = wanted || name.starts_with(prefix);
    for (const char* of_this_process :
         {"TRIREME_LAUNCH", "TRIREME_LIFELINE_FD", "TRIREME_BLACK_BOX_FD", "TRIREME_SECRET"})
      wanted = wanted && name != of_this_process;
    if (wanted) chosen.emplace(name, value);
  }
  return chosen;
}

std::string host_command(const HostsOptions& options, int node) {
  int world_size = 0, first_rank = 0;
  for (std::size_t i = 0; i < options.hosts.size(); ++i) {
    if (static_cast<int>(i) == node) first_rank = world_size;
    world_size += options.hosts[i].slots;
  }
  std::vector<std::string> words{"env"};
  Variables variables = variables_for_hosts(options.variables);
  if (!options.job_id.empty()) variables["TRIREME_JOB_ID"] = options.job_id;
  for (const auto& [name, value] : variables) words.push_back(name + "=" + value);
  const std::string url = store_url(master_of(options), options.master_port);
  words.insert(words.end(),
               {options.trireme, "launch", "-n", std::to_string(options.hosts[static_cast<std::size_t>(node)].slots),
                "--nnodes", std::to_string(options.hosts.size()), "--node-rank", std::to_string(node), "--world-size",
                std::to_string(world_size), "--first-rank", std::to_string(first_rank), "--master",
                url.substr(url.find("//") + 2), "--control-stdin"});
  words.insert(words.end(), options.launch_words.begin(), options.launch_words.end());
  words.emplace_back("--");
  words.insert(words.end(), options.program.begin(), options.program.end());
  std::string command = "cd " + shell_quoted(options.folder) + " && exec";
  for (const std::string& word : words) command += " " + shell_quoted(word);
  if (options.secret.empty()) return command;
  // The login shell of a host may be any; only sh has this `read`.
  return "exec sh -c " + shell_quoted("IFS= read -r TRIREME_SECRET && export TRIREME_SECRET && " + command);
}

LaunchEnd launch_over_hosts(const HostsOptions& options, std::ostream& err) {
  require<ConfigError>(!options.hosts.empty(), "launch: no hosts");
  require<ConfigError>(!options.program.empty(), "launch: no program to start");
  require<ConfigError>(!options.remote_shell.empty(), "launch: no command that reaches other hosts");
  require<ConfigError>(options.secret.find('\n') == std::string::npos && options.secret.size() < 4096,
                       "TRIREME_SECRET: must be one line of at most 4095 bytes");
  std::vector<SupervisedProcess> members;
  ProcessNames names{.one = "host", .many = "hosts"};
  for (int node = 0; node < static_cast<int>(options.hosts.size()); ++node) {
    members.push_back(host_member(options, node));
    names.each.push_back("host " + options.hosts[static_cast<std::size_t>(node)].name);
  }
  // A child launcher takes up to 0.6 s to stop its ranks and to report. If two fail, the one that only lost a peer may
  // be the faster.
  SupervisorResult end = supervise(members, {.lifeline = Lifeline::standard_input,
                                             .other_cause = std::chrono::milliseconds(600),
                                             .grace = std::chrono::milliseconds(2500),
                                             .out_fd = options.out_fd,
                                             .err_fd = options.err_fd,
                                             .relay = options.relay});
  end.last_output.clear();  // already printed as it arrived
  const bool failed = end.failed >= 0;
  const bool unreachable = failed && end.deaths[static_cast<std::size_t>(end.failed)].code == kSshFailed;
  if (unreachable) {
    names.hint = text(options.remote_shell[0], " could not reach it, or lost it");
    end.code = static_cast<int>(ExitCode::peer_lost);
  }
  err << report_of(end, names) << std::flush;
  return end_of(end, names);
}

}  // namespace trireme::launcher
