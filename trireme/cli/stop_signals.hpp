#pragma once
// Ctrl-C as a question that work asks now and then, so that it can clean up after itself.

namespace trireme::cli {

/// While it lives, SIGINT, SIGTERM and SIGHUP (unless they are ignored, as under nohup) are noted instead of ending the process. A second
/// one ends it at once. Afterwards they are ignored: for the last thing that a process does. One object a process at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that came, or 0.
  static int received();
};

}  // namespace trireme::cli
