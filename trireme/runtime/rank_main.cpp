#include "trireme/runtime/rank_main.hpp"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>
#include <random>

#include <c10/util/Exception.h>
#include <torch/cuda.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/recorder.hpp"
#include "trireme/runtime/launch.hpp"
#include "trireme/runtime/rendezvous.hpp"

extern char** environ;

namespace trireme {
namespace {

std::string fresh_job_id() {
  std::random_device random;
  char digits[24];
  std::snprintf(digits, sizeof digits, "%08x%08x", random(), random());
  return digits;
}

BlackBox box_at(const void* memory) {
  BlackBox box;
  std::memcpy(&box, memory, sizeof box);
  return box;
}

int tell(const std::string& what, ExitCode code) {
  std::cerr << "error: " << what << std::endl;
  return static_cast<int>(code);
}

int gpus_of_this_host() { return torch::cuda::is_available() ? static_cast<int>(torch::cuda::device_count()) : 0; }

/// Calls `action` and makes an exit code of what it throws.
int guarded(const std::function<int()>& action) {
  try {
    return action();
  } catch (const Error& e) {
    return tell(e.what(), e.exit_code());
  } catch (const c10::Error& e) {
    return tell(e.what_without_backtrace(), ExitCode::internal);
  } catch (const std::bad_alloc&) {
    return tell("out of memory", ExitCode::out_of_memory);
  } catch (const std::exception& e) {
    return tell(e.what(), ExitCode::internal);
  }
}

}  // namespace

Variables process_variables() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (const char* equals = std::strchr(*entry, '='))
      variables.emplace(std::string(*entry, static_cast<std::size_t>(equals - *entry)), equals + 1);
  return variables;
}

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
                        .black_box_bytes = sizeof(BlackBox),
                        .control_fd = job.control_fd};
  // Nodes agree on a name for the job by what they have in common; one node alone makes up its own.
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
    const BlackBox box = box_at(memory);
    if (box.magic == BlackBox::kMagic) leave_calls(box, hang);
  };
  return launch(options, err);
}

int rank_main(const RankMain& how, const std::function<void(const Environment&)>& body) {
  // A failure of the connection to a peer is an error message, not a death by signal.
  std::signal(SIGPIPE, SIG_IGN);
  return guarded([&] {
    const Environment env = detect_environment(how.variables, how.flags, gpus_of_this_host());
    if (env.start_local_ranks > 0) {
      if (!how.quiet) std::cerr << "launch: " << env.how << std::endl;
      Job job{.program = how.words, .variables = how.variables, .ranks = env.start_local_ranks};
      job.num_nodes = env.num_nodes;
      job.node_rank = env.node_rank;
      job.master_addr = env.master_addr;
      job.master_port = env.master_port;
      job.log_folder = how.log_folder;
      return run_job(job, std::cerr);
    }
    if (env.rank == 0 && !how.quiet) std::cerr << "launch: " << env.how << std::endl;
    body(env);
    return 0;
  });
}

}  // namespace trireme
