#pragma once
// Ctrl-C handling by polling a flag, so that long operations can clean up.

namespace trireme::cli {

/// While in scope, SIGINT, SIGTERM and SIGHUP (unless ignored, as under nohup) set a flag instead of ending the
/// process. A second signal ends it immediately. After destruction they are ignored: it should be the last thing that a
/// process does. One instance per process at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The received signal, or 0.
  static int received();
};

}  // namespace trireme::cli
