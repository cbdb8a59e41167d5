#include "trireme/runtime/launcher/job.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>

#include "trireme/base/error.hpp"
#include "trireme/base/process_limits.hpp"
#include "trireme/comm/calls/flight_recorder.hpp"
#include "trireme/runtime/environment/rendezvous.hpp"
#include "trireme/runtime/launcher/launch.hpp"
#include "trireme/runtime/launcher/restarts.hpp"

namespace trireme::launcher {
namespace {

std::string fresh_job_id() {
  std::random_device random;
  char digits[24];
  std::snprintf(digits, sizeof digits, "%08x%08x", random(), random());
  return digits;
}

FlightRecord box_at(const void* memory) {
  FlightRecord box;
  std::memcpy(&box, memory, sizeof box);
  return box;
}

AttemptEnd run_attempt(const Job& job, int attempt, std::optional<SignalRelay>& relay, std::ostream& err) {
  LaunchOptions options{.program = job.program,
                        .ranks = job.ranks,
                        .num_nodes = job.num_nodes,
                        .node_rank = job.node_rank,
                        .world_size = job.world_size,
                        .first_rank = job.first_rank,
                        .attempt = job.first_attempt + attempt,
                        .threads = job.threads,
                        .log_folder = attempt_folder(job.log_folder, attempt),
                        .variables = job.variables,
                        .black_box_bytes = sizeof(FlightRecord),
                        .control_fd = job.control_fd,
                        .drops_logs = job.drops_logs,
                        .out_of_memory_advice = job.out_of_memory_advice,
                        .saves_on_stop = job.saves_on_stop};
  // Nodes derive a common job id from what they share; a single node makes up its own.
  const std::string given = value_of(job.variables, "TRIREME_JOB_ID");
  options.job_id = job.num_nodes == 1 ? fresh_job_id()
                   : !given.empty()   ? given
                                      : text(job.master_addr, ":", job.master_port);
  // On one host nobody else has to reach the store.
  options.master_addr = job.num_nodes == 1 || job.master_addr.empty() ? "127.0.0.1" : job.master_addr;
  options.master_port = job.master_port;
  // Each rank has pipes, a log and a flight record here, and every rank of the job connects to the store.
  const int world_size = job.world_size > 0 ? job.world_size : job.num_nodes * job.ranks;
  need_descriptors(static_cast<std::uint64_t>(24 + 12 * job.ranks + 2 * world_size),
                   text("the launcher of ", job.ranks, " ranks"));
  HostedStore hosted;
  if (job.node_rank == 0) {
    const std::string secret = value_of(job.variables, "TRIREME_SECRET");
    hosted = host_store({.host = options.master_addr, .port = job.master_port, .secret = secret}, options.job_id,
                        world_size);
    options.master_port = hosted.port;
  }
  std::optional<StoreNotes> notes;
  if (job.node_rank != 0)
    notes.emplace(text("node ", job.node_rank, " of ", job.num_nodes), options.master_addr, options.master_port);
  const std::string hang = std::filesystem::absolute(
      job.hang_folder.empty() ? std::filesystem::path(options.log_folder) / "hang"
                              : std::filesystem::path(attempt_folder(job.hang_folder, attempt)));
  options.variables["TRIREME_HANG_FOLDER"] = hang;
  options.last_call = [](const void* memory) { return last_call(box_at(memory)); };
  options.is_finishing = [](const void* memory) {
    const FlightRecord box = box_at(memory);
    return box.magic == FlightRecord::kMagic && box.commits_under_way > 0;
  };
  std::uint64_t checkpoints = 0;
  options.on_stop = [&](int, const void* memory) {
    if (memory == nullptr) return;
    const FlightRecord box = box_at(memory);
    if (box.magic != FlightRecord::kMagic) return;
    dump_calls(box, hang);
    checkpoints = std::max(checkpoints, box.checkpoints);
  };
  if (!relay) relay.emplace();
  options.relay = &*relay;
  return {launch(options, err), checkpoints};
}

}  // namespace

int run_job(const Job& asked, std::ostream& err) {
  Job job = asked;
  job.variables["TRIREME_START_ID"] = asked.start_id.empty() ? fresh_job_id() : asked.start_id;
  require<ConfigError>(
      job.max_restarts == 0 || job.num_nodes == 1, "--max-restarts ", job.max_restarts, " on ", job.num_nodes,
      " nodes: this launcher sees only the ranks of its own host\n",
      "  fix: --hostfile, or the restarts of what started the nodes (torchrun --max-restarts, the scheduler)");
  return run_with_restarts(
      {.most = job.max_restarts,
       .saves_on_stop = job.saves_on_stop,
       .logs = [&](int attempt) { return attempt_folder(job.log_folder, attempt); },
       .unit = job.restart_unit},
      err, [&](int attempt, std::optional<SignalRelay>& relay) { return run_attempt(job, attempt, relay, err); });
}

}  // namespace trireme::launcher
