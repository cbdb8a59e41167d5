#include "trireme/runtime/launcher/orphan_reaper.hpp"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>

#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/runtime/launcher/rank_process.hpp"

namespace trireme::launcher {
namespace {

constexpr int kMostGroups = 4096;  // per host
constexpr pid_t kDone = 0;

/// Only system calls: Note [After fork].
[[noreturn]] void keep(int requests) {
  ::setsid();
  ::prctl(PR_SET_NAME, "trireme-reaper");
  // It must not keep any of our files or pipes open.
  ::dup2(requests, STDIN_FILENO);
  if (::syscall(SYS_close_range, 1u, ~0u, 0) != 0)
    for (int fd = 1; fd < 1024; ++fd) ::close(fd);
  pid_t groups[kMostGroups];
  int count = 0;
  for (pid_t word = 0;;) {
    const ssize_t size = ::read(STDIN_FILENO, &word, sizeof word);
    if (size < 0 && errno == EINTR) continue;
    if (size != sizeof word) break;
    if (word == kDone) ::_exit(0);
    if (word > 0 && count < kMostGroups) groups[count++] = word;
    for (int i = 0; i < count; ++i)
      if (groups[i] == -word) groups[i--] = groups[--count];
  }
  timespec grace{.tv_sec = 1, .tv_nsec = 0};  // for ranks that saw EOF themselves to write their flight records
  while (count > 0 && ::nanosleep(&grace, &grace) != 0 && errno == EINTR) {
  }
  for (int i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
  ::_exit(0);
}

}  // namespace

OrphanReaper::OrphanReaper() {
  Pipe pipe = make_pipe();
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_ = ::fork();
  if (pid_ == 0) keep(pipe.read.get());  // with all signals blocked
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid_ > 0) requests_ = std::move(pipe.write);
}

OrphanReaper::~OrphanReaper() {
  if (pid_ <= 0) return;
  tell(kDone);
  requests_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void OrphanReaper::tell(pid_t word) {
  // Ignored if it was killed; SIGPIPE is blocked by the supervisor's signal relay.
  if (requests_) [[maybe_unused]]
    const ssize_t written = ::write(requests_.get(), &word, sizeof word);
}

}  // namespace trireme::launcher
