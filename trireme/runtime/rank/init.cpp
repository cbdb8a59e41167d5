#include "trireme/runtime/rank/init.hpp"

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/base/ranks_of_job.hpp"
#include "trireme/runtime/process_setup.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/runtime/rank/rank_logs.hpp"
#include "trireme/runtime/rank/rank_main.hpp"
#include "trireme/runtime/rank/uncaught.hpp"

namespace trireme {
namespace {

/// N of `-n N`, which is removed; 0 without it.
int take_local_ranks(int& argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != "-n") continue;
    require<ConfigError>(i + 1 < argc, "-n: a number of ranks is missing");
    const std::string word = argv[i + 1];
    char* end = nullptr;
    const long count = std::strtol(word.c_str(), &end, 10);
    require<ConfigError>(*end == '\0' && count > 0 && count < 100000, "-n ", word, ": must be a number of ranks >= 1");
    for (int k = i + 2; k <= argc; ++k) argv[k - 2] = argv[k];  // with the null at the end
    argc -= 2;
    return static_cast<int>(count);
  }
  return 0;
}

/// Without ranks to start, if it is wrong: run_rank_main() reports that.
Environment environment_of(const RankMain& how) {
  try {
    return detect_environment(how.variables, how.flags, visible_gpus());
  } catch (const ConfigError&) {
    return {};
  }
}

/// The size that is 0 becomes what the others leave of the world.
void fill_in(ParallelSizes& sizes, int world_size) {
  int* open = nullptr;
  int others = 1;
  for (int* size : {&sizes.data_parallel_size, &sizes.tensor_parallel_size, &sizes.pipeline_parallel_size,
                    &sizes.context_parallel_size}) {
    require<ConfigError>(*size > 0 || !open, "init: more than one size is 0: only one can be what is left");
    if (*size == 0)
      open = size;
    else
      others *= *size;
  }
  require<ConfigError>(!open || world_size % others == 0, "init: ", world_size, " ranks: must be a multiple of ",
                       others, ", the product of the other sizes");
  if (open) *open = world_size / others;
}

}  // namespace

std::unique_ptr<ParallelContext> init(int& argc, char** argv, const RunOptions& options) {
  require<ConfigError>(!has_parallel_context(), "init: this program has called it before, and its ParallelContext is ",
                       "still there\n  fix: use that one, for all models of the program");
  end_process_on_uncaught_exceptions(nullptr);
  RankMain how{.words = {argv, argv + argc}, .variables = process_variables()};
  how.flags.local_ranks = take_local_ranks(argc, argv);
  // Only rank 0 prints here. The others would be silent, and nobody would know why a number is wrong.
  std::optional<RankLogs> logs;
  if (const Environment env = environment_of(how); env.start_local_ranks > 0) {
    const int first = env.node_rank * env.start_local_ranks;
    logs.emplace(options.log_folder, first, first + env.start_local_ranks - 1);
    how.log_folder = logs->folder();
    std::cerr << logs->note() << std::endl;
  }
  std::optional<Environment> rank;
  const int code = run_rank_main(how, [&rank](const Environment& env) {
    rank = env;
    return 0;
  });
  if (!rank) {  // those that were started have ended, or the environment is wrong
    if (logs) logs->finish(code);
    std::exit(code);
  }
  ParallelSizes sizes = options.sizes;
  fill_in(sizes, rank->world_size);
  auto context = std::make_unique<ParallelContext>(sizes, *rank, how.variables, options.context);
  // Never destroyed: it holds until the process ends.
  static const ProcessSetup* setup = nullptr;
  if (options.sets_up_process && context->device().is_cpu() && setup == nullptr)
    setup = new ProcessSetup({.threads = threads_of_rank(*rank, how.variables)});
  return context;
}

}  // namespace trireme
