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
///   depth   as gpt2, but range / sqrt(2 (layer + 1)), layers from 0: the parameter's name says which one it is of
///   torchtitan  as depth, and the up projection of a gated MLP like those that write to the residual stream; the
///           embedding has standard deviation 1, the head 1 / sqrt(inputs), truncated at three of them
///   plain   as torch::nn::Linear and Embedding: uniform within 1 / sqrt(inputs), normal with standard deviation 1
enum class InitScheme { gpt2, llama, depth, torchtitan, plain };
InitScheme parse_init_scheme(std::string_view name);

struct InitOptions {
  std::uint64_t seed = 0;
  InitScheme scheme = InitScheme::llama;
  double range = 0.02;
  std::int64_t layers = 1;
};

/// Initializes this rank's shard of every parameter of a Layer below `root` (parameters of other modules are not
/// changed), and sets the paths of the layers. Padding rows are zero.
void init_parameters(torch::nn::Module& root, const ParamMesh& mesh, const InitOptions& options);

/// The same values, for callers that hold only parts of the parameters.
ParamValues random_values(const ParamMesh& mesh, const InitOptions& options);

}  // namespace trireme
