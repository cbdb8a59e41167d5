#pragma once
// How long a thread has waited for others: communication that nothing hid.
#include <chrono>

namespace trireme {

/// Seconds that this thread has spent in Pending::wait() since it started. On CUDA a wait only orders streams, and the
/// time is in whatever asks the device next.
double& seconds_waited();

}  // namespace trireme
