#pragma once
// Finds the first non-finite tensor, and its rank.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/parallel/zero/zero.hpp"

namespace trireme {

/// Called with tensors of a step's forwards.
struct StepProbes {
  std::function<void(int microbatch, const std::string& path, const at::Tensor& x)> output = {};  // of every module
  std::function<void(int microbatch, const at::Tensor& loss)> loss = {};
};

/// After a failed step, with the state from before it: `run_again` runs the forwards and backwards of the step, with
/// these probes. Checks all module outputs and parameter gradients before any reduction over ranks. Returns a sentence
/// that names the first rank, tensor and microbatch, or says that the failure was not reproduced. Collective: all ranks
/// call it, and all get the same result.
std::string find_non_finite(Zero& zero, const Mesh& mesh,
                            const std::function<void(const StepProbes& probes)>& run_again);

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
