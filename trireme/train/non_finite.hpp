#pragma once
// Which tensor was the first that is not finite, and on which rank.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trireme/comm/mesh.hpp"
#include "trireme/engine/executor.hpp"
#include "trireme/train/batches.hpp"

namespace trireme {

using Probe = std::function<void(const std::string& path, const at::Tensor& x)>;

/// After a step that failed, with everything as it was before it: runs the step's forwards and backwards once more and
/// looks at all that modules and parameters make, before any rank's part is added to another's. Returns a sentence that
/// names the first rank, tensor and microbatch, or says that it did not happen again. A call of all ranks, alike on
/// all.
///   loss_gradient   of the step that failed (StepWork)
///   forward         the loss of microbatch m, while the probe is told what every module puts out
std::string find_non_finite(Executor& executor, Zero& zero, const Mesh& mesh, std::int64_t step,
                            const at::Tensor& loss_gradient,
                            const std::function<at::Tensor(int m, const Probe& probe)>& forward);

}  // namespace trireme
