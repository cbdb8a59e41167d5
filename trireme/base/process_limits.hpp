#pragma once
// Limits of this process (ulimit, control group): what is needed is checked at the start, and what failed names the
// limit behind it.
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/cgroup_facts.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

/// Raises `ulimit -n` to `needed`, up to its hard limit. ConfigError if that is lower; `who`: "rank 3 of 8".
void need_descriptors(std::uint64_t needed, const std::string& who);

/// Descriptors of a rank. Over Gloo it is connected to every other, once for the model and once for the checks. Over
/// NCCL only the checks connect ranks, and those of more than 64 only to a few; NCCL opens some of its own.
constexpr std::uint64_t descriptors_of_rank(int world_size, bool over_nccl = false) {
  constexpr std::uint64_t kOthers = 63, kMostOverNccl = 703;
  const std::uint64_t all = 2 * static_cast<std::uint64_t>(world_size) + kOthers;
  return over_nccl && all > kMostOverNccl ? kMostOverNccl : all;
}

/// ConfigError unless OpenMP survives so many threads; `source`: "OMP_NUM_THREADS".
void check_thread_count(int threads, const std::string& source);

/// Threads that do nothing, to find out whether so many can be started. They live as long as this object: ranks that
/// hold theirs at the same time share the limits of their host as they will later.
class ThreadReserve {
 public:
  /// ConfigError that names the limits if the system refuses.
  ThreadReserve(int threads, const std::string& who, const CgroupPlaces& places = {});
  ~ThreadReserve();
  ThreadReserve(const ThreadReserve&) = delete;
  ThreadReserve& operator=(const ThreadReserve&) = delete;

 private:
  struct Waiting;
  std::unique_ptr<Waiting> waiting_;
};

/// "File too large", and for that error the limit.
std::string write_error_text(int error);
/// What to do about it: "make room on that disk, or write to another".
std::string write_error_fix(int error);

struct LimitReached {
  std::string what;
  ExitCode code;
};
/// What an exception of the standard library says of a limit: no memory, no more threads, no more descriptors.
std::optional<LimitReached> limit_behind(const std::exception& e);

/// A terminate handler: says which limit the exception that nobody caught is about.
[[noreturn]] void terminate_with_limit();

}  // namespace trireme
