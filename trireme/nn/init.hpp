#pragma once
// Initialization independent of the layout: element i of a parameter is a function of (seed, name, i), so every rank
// initializes its own shard, and the full parameter is the same for any sharding.
#include <cstdint>
#include <string_view>

#include "trireme/nn/param_values.hpp"

namespace trireme {

/// The distribution of weights. Norm weights are 1, biases 0 (plain: biases as weights).
///   gpt2    normal with standard deviation `range`; for weights that write to the residual stream range / sqrt(2
///           layers)
///   llama   normal with standard deviation `range`, for all weights
///   plain   as torch::nn::Linear and Embedding: uniform within 1 / sqrt(inputs), normal with standard deviation 1
enum class InitScheme { gpt2, llama, plain };
InitScheme parse_init_scheme(std::string_view name);

struct InitOptions {
  std::uint64_t seed = 0;
  InitScheme scheme = InitScheme::llama;
  double range = 0.02;
  std::int64_t layers = 1;
};

/// Initializes this rank's shard of every parameter of a Layer below `root` (parameters of other modules are not
/// changed), and sets the paths of the layers. Padding rows are zero.
void init(torch::nn::Module& root, const ParamMesh& mesh, const InitOptions& options);

/// The same values, for callers that hold only parts of the parameters.
ParamValues random_values(const ParamMesh& mesh, const InitOptions& options);

}  // namespace trireme
