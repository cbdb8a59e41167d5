#include "trireme/base/stop_signals.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
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
std::atomic<int> leaving_signal = 0;  // the last one while leave_at_once
std::atomic<bool> leaving_held = false, leaving_for_another = false;
std::array<std::atomic<std::int64_t>, NSIG> first_request_ns{};
std::atomic<bool> user_signal_stops = false;
std::atomic<bool> save_noted = false, record_noted = false;
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// Set one after the other: a signal between them mixes the words of two moments, which are both true.
std::atomic<const char*> words_before = nullptr, words_after = nullptr;
std::atomic<std::int64_t> number_between = 0;
std::atomic<bool> bar_to_erase = false;

/// A line for standard error, in one write and without memory of its own: for a signal handler.
class SignalLine {
 public:
  SignalLine& operator<<(std::string_view words) {
    for (const char c : words.substr(0, chars_.size() - size_)) chars_[size_++] = c;
    return *this;
  }
  SignalLine& operator<<(std::int64_t number) {
    std::array<char, 20> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    return *this << std::string_view(digits.data(), end);
  }
  void write() const { [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, chars_.data(), size_); }

 private:
  std::array<char, 256> chars_{};
  std::size_t size_ = 0;
};

std::string_view short_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? "?" : name;
}

void answer(int signal, std::string_view end) {
  const char* before = words_before;
  if (before == nullptr) return;
  SignalLine line;
  line << (bar_to_erase ? "\r\x1B[K" : "") << "SIG" << short_name(signal) << ": " << before << number_between.load()
       << words_after.load() << end << "\n";
  line.write();
}

std::int64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// The first `num_to_remove` are complete; names that are too long are left where they are.
std::array<std::array<char, 4096>, 8> to_remove{};
std::atomic<std::size_t> num_to_remove = 0;

/// Silent if a launcher ends it because of another rank: the cause is what the user has to see.
[[noreturn]] void leave(int signal) {
  for (std::size_t i = num_to_remove; i-- > 0;)
    if (::unlink(to_remove[i].data()) != 0) ::rmdir(to_remove[i].data());
  if (leaving_for_another) ::_exit(static_cast<int>(stop_code(signal)));
  SignalLine line;
  line << "stopped by SIG" << short_name(signal) << " during startup: nothing was done, nothing is lost\n";
  line.write();
  ::_exit(static_cast<int>(stop_code(signal)));
}

void on_stop_signal(int signal, const siginfo_t& info) {
  const bool asked = info.si_code != SI_QUEUE || info.si_value.sival_int != kStopAfterFailure;
  if (leave_at_once) {
    leaving_for_another = !asked;
    leaving_signal = signal;  // before the question: then either this thread or the end of the Hold sees the other
    if (!leaving_held) leave(signal);
    return;
  }
  const std::int64_t now = monotonic_ns();
  std::int64_t first = 0;
  if (first_request_ns[static_cast<std::size_t>(signal)].compare_exchange_strong(first, now)) {
    int none = 0;
    const char* again = repeats_kill(signal) ? "; again to stop now, without saving" : "";
    if (noted_signal.compare_exchange_strong(none, signal) && asked) answer(signal, again);
  } else if (repeats_kill(signal) && std::chrono::nanoseconds(now - first) >= kOneRequest) {
    ::kill(::getpid(), SIGKILL);
  }
}

/// Signals that ask for no stop: the first, and whatever comes later than kOneRequest after the last that counted.
void on_user_signal(int signal) {
  std::atomic<std::int64_t>& counted = first_request_ns[static_cast<std::size_t>(signal)];
  const std::int64_t now = monotonic_ns();
  std::int64_t last = counted;
  const bool is_new = last == 0 || std::chrono::nanoseconds(now - last) >= kOneRequest;
  if (!is_new || !counted.compare_exchange_strong(last, now)) return;
  (signal == SIGUSR1 ? save_noted : record_noted) = true;
  if (signal == SIGUSR1 && noted_signal == 0) answer(signal, " and continuing");
}

void on_any_signal(int signal, siginfo_t* info, void* /*context*/) {
  const int error = errno;
  const bool stops = is_stop_signal(signal) || (signal == SIGUSR1 && user_signal_stops);
  stops ? on_stop_signal(signal, *info) : on_user_signal(signal);
  errno = error;
}

template <class Action>
void for_each_handled(Action action) {
  for (const int signal : kStopSignals) action(signal);
  for (const int signal : kUserSignals) action(signal);
}

}  // namespace

StopSignals::StopSignals(Then then, UserSignal user) {
  noted_signal = 0;
  for (auto& each : first_request_ns) each = 0;
  leave_at_once = then == Then::leave;
  leaving_signal = 0;
  leaving_held = false;
  leaving_for_another = false;
  words_before = nullptr;
  num_to_remove = 0;
  user_signal_stops = user == UserSignal::stops;
  save_noted = record_noted = false;
  struct sigaction action{};
  action.sa_sigaction = on_any_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  for_each_handled([&](int signal) {
    struct sigaction before{};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  });
  // A launcher blocks them for a rank that will handle them: until here they would have killed it.
  sigset_t held;
  ::sigemptyset(&held);
  for (const int signal : kUserSignals) ::sigaddset(&held, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
}

// Unloading libtorch takes a while: a signal during process exit would turn a success into a failure.
StopSignals::~StopSignals() {
  struct sigaction action{};
  action.sa_handler = SIG_IGN;
  for_each_handled([&](int signal) { ::sigaction(signal, &action, nullptr); });
}

void StopSignals::remove_when_leaving(const std::string& path) {
  const std::size_t next = num_to_remove;
  if (next == to_remove.size() || path.size() >= to_remove[next].size()) return;
  *std::ranges::copy(path, to_remove[next].begin()).out = '\0';
  num_to_remove = next + 1;
}

StopSignals::Hold::Hold() { leaving_held = true; }

StopSignals::Hold::~Hold() {
  leaving_held = false;
  if (const int signal = leaving_signal; signal != 0) leave(signal);
}

void StopSignals::note_from_now_on() { leave_at_once = false; }

void StopSignals::announce(const char* before, std::int64_t number, const char* after) {
  words_after = after;
  number_between = number;
  words_before = before;
}

void StopSignals::bar_is_drawn(bool drawn) { bar_to_erase = drawn; }

int StopSignals::received() { return noted_signal; }

std::optional<ExitCode> StopSignals::asked() {
  const int signal = noted_signal;
  return signal == 0 ? std::nullopt : std::optional(stop_code(signal));
}

bool StopSignals::save_asked() { return save_noted.exchange(false); }

bool StopSignals::record_asked() { return record_noted.exchange(false); }

}  // namespace trireme
