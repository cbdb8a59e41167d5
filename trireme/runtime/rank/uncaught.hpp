#pragma once
// Exceptions that nobody catches: they end a rank with the message and the exit code of the failure.

namespace trireme {

class Watchdog;

/// From here on such an exception is reported as rank_main does: "error: ..." with all its lines, and its exit code.
/// With a watchdog, a foreign exception in a thread other than this one is Gloo's: it is explained as the failure of
/// the call that this rank is in. Null: without one.
void end_process_on_uncaught_exceptions(Watchdog* watchdog);

/// The watchdog is about to be destroyed. Nothing if another one has taken its place.
void forget_watchdog(Watchdog* watchdog);

}  // namespace trireme
