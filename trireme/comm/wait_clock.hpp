#pragma once
// Time a thread has spent waiting for other ranks: exposed (not overlapped) communication.
#include <chrono>

namespace trireme {

/// Seconds that this thread has spent in Pending::wait() since it started. On CUDA a wait only orders streams, and the
/// time shows up at the next synchronization.
double& seconds_waited();

}  // namespace trireme
