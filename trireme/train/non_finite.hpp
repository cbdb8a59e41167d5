#pragma once
// Finds the first non-finite tensor, and its rank.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trireme/comm/mesh.hpp"
#include "trireme/engine/executor.hpp"
#include "trireme/train/batches.hpp"

namespace trireme {

using Probe = std::function<void(const std::string& path, const at::Tensor& x)>;

/// After a failed step, with the state from before it: runs the forwards and backwards of the step again and checks all
/// module outputs and parameter gradients before any reduction over ranks. Returns a sentence that names the first
/// rank, tensor and microbatch, or says that the failure was not reproduced. Collective: all ranks call it, and all get
/// the same result.
///   loss_gradient   of the step that failed (StepWork)
///   forward         the loss of microbatch m; it passes the output of every module to the probe
std::string find_non_finite(Executor& executor, Zero& zero, const Mesh& mesh, std::int64_t step,
                            const at::Tensor& loss_gradient,
                            const std::function<at::Tensor(int m, const Probe& probe)>& forward);

}  // namespace trireme
