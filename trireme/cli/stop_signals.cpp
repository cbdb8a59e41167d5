#include "trireme/cli/stop_signals.hpp"

#include <array>
#include <atomic>

#include <signal.h>

namespace trireme::cli {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

std::atomic<int> noted = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a handler may touch nothing else");

void note(int signal) { noted = signal; }

}  // namespace

StopSignals::StopSignals() {
  noted = 0;
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  for (const int signal : kSignals) {
    struct sigaction before{};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

// Unloading libtorch takes a while: a signal during process exit would turn a success into a failure.
StopSignals::~StopSignals() {
  struct sigaction action{};
  action.sa_handler = SIG_IGN;
  for (const int signal : kSignals) ::sigaction(signal, &action, nullptr);
}

int StopSignals::received() { return noted; }

}  // namespace trireme::cli
