#include "trireme/base/stop_signals.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string_view>

#include <unistd.h>

namespace trireme {
namespace {

// A handler gets only its signal number, so what it changes must be global, and lock-free.
std::atomic<int> noted_signal = 0;
std::atomic<bool> leave_at_once = false;
std::array<std::atomic<std::int64_t>, NSIG> first_request_ns{};
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::int64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

[[noreturn]] void leave(int signal) {
  const auto say = [](std::string_view words) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, words.data(), words.size());
  };
  const char* name = ::sigabbrev_np(signal);
  say("stopped by SIG");
  say(name == nullptr ? "?" : name);
  say(" during the start: nothing was done, so nothing is lost\n");
  ::_exit(static_cast<int>(stop_code(signal)));
}

void on_stop_signal(int signal) {
  const int error = errno;
  if (leave_at_once) leave(signal);
  const std::int64_t now = monotonic_ns();
  std::int64_t first = 0;
  if (first_request_ns[static_cast<std::size_t>(signal)].compare_exchange_strong(first, now)) {
    int none = 0;
    noted_signal.compare_exchange_strong(none, signal);
  } else if (repeats_kill(signal) && std::chrono::nanoseconds(now - first) >= kOneRequest) {
    ::kill(::getpid(), SIGKILL);
  }
  errno = error;
}

}  // namespace

StopSignals::StopSignals(Then then) {
  noted_signal = 0;
  for (auto& each : first_request_ns) each = 0;
  leave_at_once = then == Then::leave;
  struct sigaction action{};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : kStopSignals) {
    struct sigaction before{};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

// Unloading libtorch takes a while: a signal during process exit would turn a success into a failure.
StopSignals::~StopSignals() {
  struct sigaction action{};
  action.sa_handler = SIG_IGN;
  for (const int signal : kStopSignals) ::sigaction(signal, &action, nullptr);
}

void StopSignals::note_from_now_on() { leave_at_once = false; }

int StopSignals::received() { return noted_signal; }

std::optional<ExitCode> StopSignals::asked() {
  const int signal = noted_signal;
  return signal == 0 ? std::nullopt : std::optional(stop_code(signal));
}

}  // namespace trireme
