#pragma once
// The signals that ask a process to stop, and what it answers with (docs/errors.md, "Signals").
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <signal.h>

#include "trireme/base/error.hpp"

namespace trireme {

/// Ctrl-C; schedulers, container runtimes and other launchers; a lost terminal.
inline constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP};
constexpr bool is_stop_signal(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

/// Requests to a process that goes on: save (`sbatch --signal=USR1@120`, `scancel -s USR1`), and write the last calls.
inline constexpr std::array kUserSignals = {SIGUSR1, SIGUSR2};

/// What SIGUSR1 asks for: a scheduler may send it before it ends a job, or a person at any time.
enum class UserSignal { saves, stops };

/// torchrun, mpirun, `timeout` and Slurm signal a process and also its group: within this time it is one request.
inline constexpr std::chrono::milliseconds kOneRequest(1000);

/// The value that a launcher sends with SIGTERM (sigqueue) when it stops the ranks because one has failed: nobody asked
/// for a stop, so there is nothing to answer.
inline constexpr int kStopAfterFailure = 0x7472;

/// Whether the same signal again, later than kOneRequest, means "at once, without saving".
constexpr bool repeats_kill(int signal) { return signal == SIGINT || signal == SIGTERM; }

/// Exit code of a process that a second request killed: the shell's for SIGKILL.
inline constexpr int kKilledCode = 128 + SIGKILL;

/// Exit code of a process that a signal asked to stop, and that has lost nothing.
constexpr ExitCode stop_code(int signal) { return signal == SIGINT ? ExitCode::interrupted : ExitCode::preempted; }

/// While in scope, kStopSignals (unless ignored, as under nohup) do not end the process as the system would: either
/// they are noted, for work that polls received(), or, as long as there is nothing to save, they end it at once with
/// stop_code(). A repeated SIGINT or SIGTERM kills it. kUserSignals are noted from the beginning, for save_asked() and
/// record_asked(). After destruction all are ignored: it should be the last thing that a process does. One instance per
/// process at a time.
class StopSignals {
 public:
  enum class Then { note, leave };
  explicit StopSignals(Then then, UserSignal user = UserSignal::saves);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Then::leave also removes this file, or this folder if it is empty then: what was named last first. At most eight.
  static void remove_when_leaving(const std::string& path);

  /// While in scope, Then::leave waits: for code that makes something and only then can name it for removal.
  class Hold {
   public:
    Hold();
    ~Hold();  // leaves, if a signal has come
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
  };

  /// From now on there is something to save.
  static void note_from_now_on();

  /// What the first signal will be answered with, at once and on standard error: "finishing step 12, then saving". The
  /// words must be constants. A rank that prints nothing does not call this.
  static void announce(const char* before, std::int64_t number, const char* after);
  /// Whether a progress bar is on the terminal, to be erased before that.
  static void bar_is_drawn(bool drawn);

  /// The first signal that was noted, or 0.
  static int received();
  /// Its exit code.
  static std::optional<ExitCode> asked();

  /// True once for each SIGUSR1 (UserSignal::saves): save, and go on. Several within kOneRequest are one, and so are
  /// those that came since the last call.
  static bool save_asked();
  /// The same for SIGUSR2: write down the last calls.
  static bool record_asked();
};

}  // namespace trireme
