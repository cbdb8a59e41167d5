#include "trireme/runtime/launcher/signal_relay.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <ranges>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/stop_signals.hpp"

namespace trireme::launcher {
namespace {

// Note [The one global]
// A handler gets only its signal number, so the descriptor it writes to must be global. Not a signalfd: that needs the
// signals blocked in every thread, and the caller's threads already exist.
std::atomic<int> relay_fd{-1};
std::atomic<int> handlers_running{0};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

void relay_signal(int signal) {
  const int error = errno;
  handlers_running.fetch_add(1);
  const int fd = relay_fd.load();
  const auto byte = static_cast<unsigned char>(signal);
  if (fd >= 0) [[maybe_unused]]
    const ssize_t written = ::write(fd, &byte, 1);
  handlers_running.fetch_sub(1);
  errno = error;
}

bool sigpipe_is_pending() {
  sigset_t pending;
  ::sigpending(&pending);
  return ::sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

SignalRelay::SignalRelay() : pipe_(make_pipe()) {
  for (const int fd : {pipe_.read.get(), pipe_.write.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  int nobody = -1;
  require(relay_fd.compare_exchange_strong(nobody, pipe_.write.get()), "a process launches one job at a time");
  pipe_signal_was_pending_ = sigpipe_is_pending();
  sigset_t broken_pipe;
  ::sigemptyset(&broken_pipe);
  ::sigaddset(&broken_pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken_pipe, &original_mask_);
  const auto replace = [&](int signal, const struct sigaction& old, void (*handler)(int)) {
    before_.push_back({signal, old});
    struct sigaction action{};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  };
  struct sigaction old{};
  for (const int signal : kRelayedSignals) {
    ::sigaction(signal, nullptr, &old);
    if (old.sa_handler != SIG_IGN || signal == SIGCONT) replace(signal, old, relay_signal);
  }
  ::sigaction(SIGCHLD, nullptr, &old);
  if (old.sa_handler == SIG_IGN || (old.sa_flags & SA_NOCLDWAIT) != 0) replace(SIGCHLD, old, SIG_DFL);
  // Until here there was nothing to stop. After us the result of the job is known: no signal may change it.
  StopSignals::note_from_now_on();
}

SignalRelay::~SignalRelay() {
  for (const Before& each : before_ | std::views::reverse) ::sigaction(each.signal, &each.action, nullptr);
  relay_fd.store(-1);
  while (handlers_running.load() != 0) {  // in another thread, for the duration of one write
  }
  sigset_t broken_pipe;
  ::sigemptyset(&broken_pipe);
  ::sigaddset(&broken_pipe, SIGPIPE);
  const timespec now{};
  if (!pipe_signal_was_pending_ && sigpipe_is_pending()) ::sigtimedwait(&broken_pipe, nullptr, &now);
  ::pthread_sigmask(SIG_SETMASK, &original_mask_, nullptr);
}

std::vector<int> SignalRelay::take() {
  std::vector<int> signals;
  unsigned char bytes[64];
  ssize_t size = 0;
  while ((size = ::read(pipe_.read.get(), bytes, sizeof bytes)) > 0 || (size < 0 && errno == EINTR))
    for (ssize_t i = 0; i < size; ++i) signals.push_back(bytes[i]);
  return signals;
}

std::string signal_name(int signal) {
  const char* short_name = ::sigabbrev_np(signal);
  return short_name == nullptr ? text("signal ", signal) : text("SIG", short_name);
}

}  // namespace trireme::launcher
