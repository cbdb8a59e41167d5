#pragma once
// The main() of a program that runs as ranks, under any launcher.
#include <exception>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "trireme/runtime/environment/environment.hpp"
#include "trireme/runtime/environment/variables.hpp"

namespace trireme {

/// This process's environment variables. Only for main(): the layers below get them as an argument.
Variables process_variables();

struct RankMain {
  std::vector<std::string> words;  // argv, including the program
  Variables variables{};
  EnvironmentFlags flags{};                    // flags.local_ranks: -n N starts N ranks of this program
  std::string log_folder{};                    // for ranks that this process starts
  int max_restarts = 0;                        // of a job whose ranks this process starts
  bool quiet = false;                          // do not print to stderr how it was started
  bool saves_on_stop = false;                  // `body` has StopSignals
  std::string out_of_memory_advice{};          // for a rank that the kernel kills for want of memory
  std::function<bool(int code)> drops_logs{};  // whether the caller removes the log folder after this exit code
};

/// Becomes a rank and runs `body`, whose result is the exit code, or starts the ranks of this host and waits for them.
/// All errors are reported in one place, on stderr, as "error: ..."; the exit code is that of the failure.
int run_rank_main(const RankMain& how, const std::function<int(const Environment&)>& body);

/// Reports an exception as run_rank_main does, and returns its exit code.
int report_failure(const std::exception_ptr& failure);

/// The same; `body` may return void, which means 0.
template <class Body>
int rank_main(const RankMain& how, const Body& body) {
  return run_rank_main(how, [&](const Environment& env) -> int {
    if constexpr (std::is_void_v<std::invoke_result_t<const Body&, const Environment&>>) {
      body(env);
      return 0;
    } else {
      return body(env);
    }
  });
}

}  // namespace trireme
