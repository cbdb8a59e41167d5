#pragma once
// Turns the signals that a launcher forwards into a pollable file descriptor, and suppresses their default actions.
#include <array>
#include <vector>

#include <signal.h>

#include "trireme/runtime/launcher/rank_process.hpp"

namespace trireme::launcher {

/// kStopSignals, kUserSignals, and what wakes stopped ranks.
inline constexpr std::array kRelayedSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT};

/// Handles kRelayedSignals, except those that were ignored (nohup, a shell's background jobs). Blocks SIGPIPE in the
/// calling thread, and makes sure that SIGCHLD is not ignored: exit statuses would be lost. The destructor restores
/// everything. One instance per process, since signal handlers are per process: InternalError for a second.
class SignalRelay {
 public:
  SignalRelay();
  ~SignalRelay();
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;

  /// Readable when a signal has arrived.
  int fd() const { return pipe_.read.get(); }
  /// The signals that have arrived, in order.
  std::vector<int> take();
  /// The calling thread's mask before construction.
  const sigset_t& original_mask() const { return original_mask_; }

 private:
  Pipe pipe_;
  sigset_t original_mask_{};
  bool pipe_signal_was_pending_ = false;
  struct Before {
    int signal;
    struct sigaction action;
  };
  std::vector<Before> before_{};
};

/// "SIGTERM"
std::string signal_name(int signal);

}  // namespace trireme::launcher
