#include "trireme/runtime/launcher/job.hpp"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>

#include "trireme/base/error.hpp"
#include "trireme/comm/flight_recorder.hpp"
#include "trireme/runtime/launcher/launch.hpp"
#include "trireme/runtime/rank/rendezvous.hpp"

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

}  // namespace

int run_job(const Job& job, std::ostream& err) {
  LaunchOptions options{.program = job.program,
                        .ranks = job.ranks,
                        .num_nodes = job.num_nodes,
                        .node_rank = job.node_rank,
                        .world_size = job.world_size,
                        .first_rank = job.first_rank,
                        .threads = job.threads,
                        .log_folder = job.log_folder,
                        .variables = job.variables,
                        .black_box_bytes = sizeof(FlightRecord),
                        .control_fd = job.control_fd,
                        .saves_on_stop = job.saves_on_stop};
  // Nodes derive a common job id from what they share; a single node makes up its own.
  const std::string given = value_of(job.variables, "TRIREME_JOB_ID");
  options.job_id = job.num_nodes == 1 ? fresh_job_id()
                   : !given.empty()   ? given
                                      : text(job.master_addr, ":", job.master_port);
  options.master_addr = job.master_addr.empty() ? "127.0.0.1" : job.master_addr;
  options.master_port = job.master_port;
  HostedStore hosted;
  if (job.node_rank == 0) {
    hosted = host_store(job.master_port, options.job_id);
    options.master_port = hosted.port;
  }
  const std::string hang =
      std::filesystem::absolute(job.hang_folder.empty() ? std::filesystem::path(job.log_folder) / "hang"
                                                        : std::filesystem::path(job.hang_folder));
  options.variables["TRIREME_HANG_FOLDER"] = hang;
  options.last_call = [](const void* memory) { return last_call(box_at(memory)); };
  options.on_stop = [&hang](int, const void* memory) {
    if (memory == nullptr) return;
    const FlightRecord box = box_at(memory);
    if (box.magic == FlightRecord::kMagic) dump_calls(box, hang);
  };
  return launch(options, err);
}

}  // namespace trireme::launcher
