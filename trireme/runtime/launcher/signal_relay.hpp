#pragma once
// The signals that a launcher passes on, as something to poll. While one is alive they do nothing else.
#include <array>
#include <vector>

#include <signal.h>

#include "trireme/runtime/launcher/rank_process.hpp"

namespace trireme::launcher {

inline constexpr std::array kRelayedSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT};

/// Takes over kRelayedSignals, except those that were ignored (nohup, a shell's background jobs). Keeps SIGPIPE from
/// the calling thread, and SIGCHLD from being ignored: no exit status would be left. All is as before in the end. One
/// at a time in a process, since signals belong to the process: InternalError for a second.
class SignalRelay {
 public:
  SignalRelay();
  ~SignalRelay();
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;

  /// Readable when a signal has come.
  int fd() const { return pipe_.read.get(); }
  /// Those that have come, in order.
  std::vector<int> take();
  /// The calling thread's, as it was.
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
