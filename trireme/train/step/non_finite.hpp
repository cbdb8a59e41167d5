#pragma once
// Finds the first non-finite tensor, and its rank.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/parallel/pipeline/executor.hpp"
#include "trireme/train/step/batches.hpp"

namespace trireme {

using Probe = std::function<void(const std::string& path, const at::Tensor& x)>;

/// As ChunkForward; it passes the output of every module to the probe.
using ProbedForward =
    std::function<ChunkOutput(int chunk, int microbatch, const std::vector<Tensors>& inputs, const Probe& probe)>;

/// After a failed step, with the state from before it: runs the forwards and backwards of the step again and checks all
/// module outputs and parameter gradients before any reduction over ranks. Returns a sentence that names the first
/// rank, tensor and microbatch, or says that the failure was not reproduced. Collective: all ranks call it, and all get
/// the same result.
///   loss_gradient, shape_key   of the step that failed (StepWork)
std::string find_non_finite(Executor& executor, Zero& zero, const Mesh& mesh, std::int64_t step,
                            const at::Tensor& loss_gradient, const ProbedForward& forward,
                            const std::function<std::int64_t(int)>& shape_key = {});

/// The weights that a run has saved.
struct SavedWeights {
  std::filesystem::path folder;
  std::vector<std::string> not_finite;  // parameters with a NaN or an infinity
};

/// ", saved in FOLDER", and what is wrong with them.
std::string str(const SavedWeights& saved);

/// At the end of a run: NonFiniteError if the saved weights are not finite, or if every one of `steps` updates was
/// skipped, so that nothing was trained.
void check_trained(std::int64_t steps, std::int64_t skipped, const SavedWeights& saved);

}  // namespace trireme
