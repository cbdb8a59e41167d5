#include "trireme/base/process_limits.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "trireme/base/human.hpp"

namespace trireme {
namespace {

constexpr int kMostThreads = 1024;  // libgomp crashes with 2,048

std::optional<std::uint64_t> soft_limit(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return limit.rlim_cur;
}

std::string shown_count(std::optional<std::uint64_t> limit) {
  return limit ? thousands(static_cast<std::int64_t>(*limit)) : "unlimited";
}

/// What may have refused a thread.
std::string thread_limits(const CgroupPlaces& places) {
  std::string limits = text("ulimit -u ", shown_count(soft_limit(RLIMIT_NPROC)));
  if (const auto pids = cgroup_pid_limit(places))
    limits += text(", pids.max of the control group ", pids->max, " (", pids->current, " in use)");
  if (const auto space = soft_limit(RLIMIT_AS)) limits += text(", ulimit -v ", thousands(*space / 1024));
  return limits;
}

std::string no_threads_text(const CgroupPlaces& places) {
  return text("\n  limits: ", thread_limits(places),
              "\n  fix: raise the one that is reached, start fewer ranks, or set a smaller OMP_NUM_THREADS");
}

constexpr const char* kOutOfAddresses =
    "out of memory: ulimit -v allows %lu MiB of addresses\n  fix: ulimit -v unlimited; libtorch alone needs about 1 "
    "GiB";

std::string out_of_memory_text() {
  const auto space = soft_limit(RLIMIT_AS);
  if (!space) return "out of memory";
  std::array<char, 256> words{};
  std::snprintf(words.data(), words.size(), kOutOfAddresses, *space >> 20);
  return words.data();
}

}  // namespace

void need_descriptors(std::uint64_t needed, const std::string& who) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min<rlim_t>(needed, limit.rlim_max);
  const bool enough = limit.rlim_max >= needed && ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  require<ConfigError>(enough, who, " needs about ", needed, " descriptors; ulimit -n allows ", before,
                       ", and its hard limit is ", limit.rlim_max, "\n  fix: ulimit -n ",
                       std::max<rlim_t>(needed, 4096),
                       " (who may raise the hard limit: root, or LimitNOFILE of the service)");
}

void check_thread_count(int threads, const std::string& source) {
  const int most = std::max(kMostThreads, static_cast<int>(std::thread::hardware_concurrency()));
  require<ConfigError>(threads <= most, source, " = ", threads, ": must be at most ", most, ", and more than ",
                       usable_cores(), ", the number of usable cores, is slower\n  fix: ", source, "=", usable_cores());
}

struct ThreadReserve::Waiting {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::vector<std::thread> threads;

  void end() {
    {
      const std::lock_guard lock(mutex);
      over = true;
    }
    changed.notify_all();
    for (std::thread& each : threads) each.join();
  }
};

ThreadReserve::ThreadReserve(int threads, const std::string& who, const CgroupPlaces& places)
    : waiting_(std::make_unique<Waiting>()) {
  waiting_->threads.reserve(static_cast<std::size_t>(threads));
  try {
    for (int i = 0; i < threads; ++i)
      waiting_->threads.emplace_back([waiting = waiting_.get()] {
        std::unique_lock lock(waiting->mutex);
        waiting->changed.wait(lock, [&] { return waiting->over; });
      });
  } catch (const std::system_error& e) {
    const std::string limits = no_threads_text(places);  // while they still count
    const std::size_t started = waiting_->threads.size();
    waiting_->end();
    throw ConfigError(text(who, " needs ", threads, " more threads and could start ", started, ": ",
                           errno_text(e.code().value()), limits));
  }
}

ThreadReserve::~ThreadReserve() { waiting_->end(); }

std::string write_error_text(int error) {
  const auto limit = soft_limit(RLIMIT_FSIZE);
  if (error != EFBIG || !limit) return errno_text(error);
  return text(errno_text(error), ", ulimit -f allows ", human_bytes(static_cast<double>(*limit)));
}

std::string write_error_fix(int error) {
  if (error == EFBIG && soft_limit(RLIMIT_FSIZE)) return "ulimit -f unlimited";
  if (error == EISDIR) return "name a file, not a folder";
  if (error == EACCES || error == EPERM || error == EROFS) return "make it writable for this user, or write elsewhere";
  if (error == EIO || error == ESTALE) return "check the disk or the network that it is on, or write elsewhere";
  return "make room on that disk, or write to another";
}

std::optional<LimitReached> limit_behind(const std::exception& e) {
  if (dynamic_cast<const std::bad_alloc*>(&e) != nullptr)
    return LimitReached{out_of_memory_text(), ExitCode::out_of_memory};
  const auto* system = dynamic_cast<const std::system_error*>(&e);
  if (system == nullptr) return std::nullopt;
  const std::string why = errno_text(system->code().value());
  if (system->code().value() == EAGAIN)
    return LimitReached{text("a thread could not be started: ", why, no_threads_text({})), ExitCode::config};
  if (system->code().value() == EMFILE)
    return LimitReached{text("a file or connection could not be opened: ", why, ", ulimit -n allows ",
                             shown_count(soft_limit(RLIMIT_NOFILE)), "\n  fix: ulimit -n 4096"),
                        ExitCode::config};
  return std::nullopt;
}

void terminate_with_limit() {
  // Maybe before main(), when there are no streams yet, and maybe without any memory left.
  const auto say = [](std::string_view words) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, words.data(), words.size());
  };
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
    say("error: std::terminate was called\n");
  } catch (const std::bad_alloc&) {
    std::array<char, 256> words{};
    const auto space = soft_limit(RLIMIT_AS);
    std::snprintf(words.data(), words.size(), kOutOfAddresses, (space ? *space : 0) >> 20);
    say("error: ");
    say(space ? words.data() : "out of memory");
    say("\n");
    ::_exit(static_cast<int>(ExitCode::out_of_memory));
  } catch (const std::exception& e) {
    const auto limit = limit_behind(e);
    say(text("error: ", limit ? limit->what : e.what(), "\n"));
    if (limit) ::_exit(static_cast<int>(limit->code));
  } catch (...) {
    say("error: an exception of an unknown type\n");
  }
  std::abort();
}

}  // namespace trireme
