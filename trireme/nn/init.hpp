#pragma once
// Initial values that do not depend on the layout: element i of a parameter is a function of (seed, name, i), so that
// every rank fills its own part, and all parts together are the same whole however it is cut.
#include <cstdint>
#include <string_view>

#include "trireme/nn/layer.hpp"

namespace trireme {

/// What weights are drawn from. Norm weights are 1, biases 0 (plain: as weights).
///   gpt2    normal with deviation `range`; those that write to the residual stream: range / sqrt(2 layers)
///   llama   normal with deviation `range`, all of them
///   plain   as torch::nn::Linear and Embedding: uniform within 1 / sqrt(inputs), normal with deviation 1
enum class InitScheme { gpt2, llama, plain };
InitScheme parse_init_scheme(std::string_view name);

struct InitOptions {
  std::uint64_t seed = 0;
  InitScheme scheme = InitScheme::llama;
  double range = 0.02;
  std::int64_t layers = 1;
};

/// Fills every parameter of a Layer below `root` (those of ordinary modules stay as they were made), with what this
/// rank holds of it, and tells the layers their names. Rows of a padded dim that mean nothing are zeros.
void init(torch::nn::Module& root, const ParamMesh& mesh, const InitOptions& options);

/// The same for some of them: for who never has all of them in memory.
void init_params(const std::vector<Param>& params, const ParamMesh& mesh, const InitOptions& options);

}  // namespace trireme
