#include "trireme/runtime/launcher/launch.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <ostream>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/shared_memory.hpp"
#include "trireme/runtime/launcher/supervisor.hpp"
#include "trireme/runtime/launcher/supervisor_report.hpp"

namespace trireme::launcher {
namespace {

struct Numbers {
  int world_size, first_rank;
};

Numbers checked_numbers(const LaunchOptions& options) {
  require<ConfigError>(!options.program.empty() && !options.program[0].empty(), "launch: no program to start");
  require<ConfigError>(options.ranks >= 1, "-n ", options.ranks, ": must be at least 1");
  require<ConfigError>(0 <= options.node_rank && options.node_rank < options.num_nodes, "--node-rank ",
                       options.node_rank, ": must be from 0 to ", options.num_nodes - 1, " with --nnodes ",
                       options.num_nodes);
  const Numbers numbers = options.world_size == 0
                              ? Numbers{options.num_nodes * options.ranks, options.node_rank * options.ranks}
                              : Numbers{options.world_size, options.first_rank};
  require<ConfigError>(numbers.first_rank >= 0 && numbers.first_rank + options.ranks <= numbers.world_size,
                       "--first-rank ", numbers.first_rank, " with ", options.ranks,
                       " ranks on this host: must fit into --world-size ", numbers.world_size);
  return numbers;
}

Variables variables_of_rank(const LaunchOptions& options, Numbers numbers, int local_rank, const SharedMemory& box) {
  Variables variables = options.variables;
  const auto set = [&](const char* name, int value) { variables[name] = std::to_string(value); };
  set("RANK", numbers.first_rank + local_rank);
  set("WORLD_SIZE", numbers.world_size);
  set("LOCAL_RANK", local_rank);
  set("LOCAL_WORLD_SIZE", options.ranks);
  set("GROUP_RANK", options.node_rank);
  set("GROUP_WORLD_SIZE", options.num_nodes);
  set("MASTER_PORT", options.master_port);
  variables["MASTER_ADDR"] = options.master_addr;
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // makes Python's env:// connect as a client, also on rank 0
  variables["TRIREME_LAUNCH"] = "1";
  variables["TRIREME_JOB_ID"] = options.job_id;
  for (const char* name : {"TRIREME_ATTEMPT", "TORCHELASTIC_RESTART_COUNT"}) set(name, options.attempt);
  variables.erase("TRIREME_BLACK_BOX_FD");
  if (box.fd() >= 0) set("TRIREME_BLACK_BOX_FD", box.fd());
  if (options.threads > 0) {
    set("OMP_NUM_THREADS", options.threads);
  } else if (!is_set(variables, "OMP_NUM_THREADS")) {
    set("OMP_NUM_THREADS", std::max(1, usable_cores(options.cgroup) / options.ranks));
  }
  // Threads that wait would spin, on cores that other ranks need. libgomp reads it when it is loaded: a rank is too
  // late.
  if (!is_set(variables, "OMP_WAIT_POLICY") && !is_set(variables, "GOMP_SPINCOUNT"))
    variables["OMP_WAIT_POLICY"] = "PASSIVE";
  return variables;
}

std::string log_file(const LaunchOptions& options, int rank) {
  if (options.log_folder.empty()) return "";
  return text(options.log_folder, options.log_folder.ends_with('/') ? "" : "/", log_name(rank));
}

std::string oom_hint(const std::optional<long>& before, const std::optional<long>& after) {
  if (!before || !after || *after <= *before) return "";
  return text("the kernel's OOM killer killed a process (oom_kill rose from ", *before, " to ", *after,
              "): probably this rank");
}

}  // namespace

std::string log_name(int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "r%04d.log", rank);
  return name;
}

LaunchEnd launch(const LaunchOptions& options, std::ostream& err) {
  const Numbers numbers = checked_numbers(options);
  if (!options.log_folder.empty()) make_folder(options.log_folder);
  std::vector<SharedMemory> boxes;
  std::vector<SupervisedProcess> members;
  for (int local_rank = 0; local_rank < options.ranks; ++local_rank) {
    const int rank = numbers.first_rank + local_rank;
    const SharedMemory& box = boxes.emplace_back(
        options.black_box_bytes > 0 ? SharedMemory("a flight record", options.black_box_bytes) : SharedMemory());
    members.push_back({.program = options.program[0],
                       .argv = options.program,
                       .variables = variables_of_rank(options, numbers, local_rank, box),
                       .log_file = log_file(options, rank),
                       .echo = rank == 0});
    if (box.fd() >= 0) members.back().keep.push_back(box.fd());
  }
  const std::optional<long> oom_before = cgroup_oom_kills(options.cgroup);
  SupervisorResult end =
      supervise(members, {.is_finishing =
                              [&](std::size_t i) {
                                const void* box = boxes[i].data();
                                return options.is_finishing && box != nullptr && options.is_finishing(box);
                              },
                          .out_fd = options.out_fd,
                          .err_fd = options.err_fd,
                          .relay = options.relay,
                          .control_fd = options.control_fd,
                          .saves_on_stop = options.saves_on_stop,
                          .warn = [&](const std::string& what) { err << "warning: " << what << "\n"; }});
  ProcessNames names{.one = "rank", .many = "ranks"};
  for (int i = 0; i < options.ranks; ++i) names.each.push_back(text("rank ", numbers.first_rank + i));
  if (end.failed >= 0) {
    const int rank = numbers.first_rank + end.failed;
    const void* box = boxes[static_cast<std::size_t>(end.failed)].data();
    if (box != nullptr && options.last_call) names.last_call = options.last_call(box);
    if (end.deaths[static_cast<std::size_t>(end.failed)].signal == SIGKILL)
      names.hint = oom_hint(oom_before, cgroup_oom_kills(options.cgroup));
    if (!names.hint.empty()) {
      end.code = static_cast<int>(ExitCode::out_of_memory);
      names.hint += options.out_of_memory_advice;
    }
    if (!options.drops_logs || !options.drops_logs(end.code)) names.log_file = log_file(options, rank);
    if (rank == 0) end.last_output.clear();  // already shown as it arrived
  }
  err << report_of(end, names) << std::flush;
  if (options.on_stop && (end.failed >= 0 || end.stopped_from_above))
    for (int i = 0; i < options.ranks; ++i)
      options.on_stop(numbers.first_rank + i, boxes[static_cast<std::size_t>(i)].data());
  return end_of(end, names);
}

}  // namespace trireme::launcher
