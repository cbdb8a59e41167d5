#include "trireme/cli/stop_signals.hpp"

#include <array>
#include <atomic>

#include <signal.h>

namespace trireme {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

std::atomic<int> noted = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a handler may touch nothing else");
std::array<struct sigaction, kSignals.size()> before;

void note(int signal) { noted = signal; }

}  // namespace

StopSignals::StopSignals() {
  noted = 0;
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before[i], nullptr);
}

int StopSignals::received() { return noted; }

}  // namespace trireme
