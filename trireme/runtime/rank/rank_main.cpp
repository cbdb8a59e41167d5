#include "trireme/runtime/rank/rank_main.hpp"

#include <cstdlib>
#include <cstring>
#include <iostream>

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/process_limits.hpp"
#include "trireme/base/process_start.hpp"
#include "trireme/runtime/launcher/job.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/runtime/rank/out_of_memory.hpp"

extern char** environ;

namespace trireme {
namespace {

constexpr int kLogErrors = 2;  // of libtorch's levels

int tell(const std::string& what, ExitCode code) {
  std::cerr << "error: " << what << std::endl;
  return static_cast<int>(code);
}

/// Calls `action` and turns an exception into an exit code.
int guarded(const std::function<int()>& action) {
  try {
    return action();
  } catch (const Error& e) {
    return tell(e.what(), e.exit_code());
  } catch (const std::exception& e) {
    const auto* torch = dynamic_cast<const c10::Error*>(&e);
    const auto refused = torch != nullptr ? refused_memory(e) : std::nullopt;
    if (refused)
      return tell(text("out of memory: ", amount_text(*refused), " from ", refused->by, kMemoryFix),
                  ExitCode::out_of_memory);
    if (torch != nullptr) return tell(torch->what_without_backtrace(), ExitCode::internal);
    if (const auto limit = limit_behind(e)) return tell(limit->what, limit->code);
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

int report_failure(const std::exception_ptr& failure) {
  return guarded([&failure]() -> int { std::rethrow_exception(failure); });
}

int run_rank_main(const RankMain& how, const std::function<int(const Environment&)>& body) {
  prepare_process();
  ignore_broken_pipes();
  // c10d logs the stack of every connection that breaks, before our own sentence with the rank and the call.
  if (!is_set(how.variables, "TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = kLogErrors;
  return guarded([&] {
    Environment env = detect_environment(how.variables, how.flags, visible_gpus());
    if (how.max_restarts > 0 && env.launcher == "alone" && env.start_local_ranks == 0)
      env.start_local_ranks = how.flags.local_ranks;  // a single rank, that somebody has to start again
    require<ConfigError>(how.max_restarts >= 0, "--max-restarts ", how.max_restarts, ": must be at least 0\n",
                         "  fix: 0 for no restart");
    require<ConfigError>(how.max_restarts == 0 || env.start_local_ranks > 0 || env.launcher == "trireme launch",
                         "--max-restarts ", how.max_restarts, ": this process does not start the ranks (",
                         env.how.empty() ? env.launcher : env.how, ")\n",
                         "  fix: -n N, or the restarts of the launcher (torchrun --max-restarts, sbatch --requeue)");
    if (env.start_local_ranks > 0) {
      if (!how.quiet) std::cerr << "launch: " << env.how << std::endl;
      launcher::Job job{.program = how.words, .variables = how.variables, .ranks = env.start_local_ranks};
      job.num_nodes = env.num_nodes;
      job.node_rank = env.node_rank;
      job.master_addr = env.master_addr;
      job.master_port = env.master_port;
      job.log_folder = how.log_folder;
      job.max_restarts = how.max_restarts;
      job.saves_on_stop = how.saves_on_stop;
      job.out_of_memory_advice = how.out_of_memory_advice;
      job.drops_logs = how.drops_logs;
      return launcher::run_job(job, std::cerr);
    }
    if (env.rank == 0 && !how.quiet) std::cerr << "launch: " << env.how << std::endl;
    return body(env);
  });
}

}  // namespace trireme
