#pragma once
// Whether this process works together with others, for libraries that know neither the launcher nor the context.
#include <atomic>

namespace trireme {
namespace detail {
inline std::atomic<int> ranks_of_job = 1, contexts = 0, number_of_context = 0;
}  // namespace detail

/// The ranks of the job that this process is one of, while it has a ParallelContext; else 1.
inline int ranks_of_this_job() { return detail::contexts > 0 ? detail::ranks_of_job.load() : 1; }
/// Without one, the process groups that it had are gone.
inline bool has_parallel_context() { return detail::contexts > 0; }
/// Another one for each that follows another; 0 without one.
inline int number_of_parallel_context() { return has_parallel_context() ? detail::number_of_context.load() : 0; }

/// Of ParallelContext.
inline void parallel_context_begins(int ranks) {
  detail::ranks_of_job = ranks;
  if (detail::contexts++ == 0) ++detail::number_of_context;
}
inline void parallel_context_ends() { --detail::contexts; }

}  // namespace trireme
