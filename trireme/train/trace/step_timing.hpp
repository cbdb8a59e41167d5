#pragma once
// The time of a training step, on this rank and on all of them.
#include <cstdint>
#include <vector>

#include "trireme/metrics/step_shares.hpp"

namespace trireme {

/// Seconds. On a GPU the host only starts the work: there nothing but `step` and `data` means anything.
struct StepTiming {
  std::int64_t begin_ns = 0;  // by steady_ns()
  double step = 0, data = 0;  // on this rank
  metrics::StepShares shares{};
  std::vector<double> own_work{}, bubbles{};  // by rank; see StepAgreement
};

}  // namespace trireme
