#pragma once
// Gradients that are whole only when the ranks of a model add up their parts: of norms in sequence parallel, of KV
// heads that several ranks keep. Which those are is in each ParamSpec; nothing else decides it.
#include "trireme/comm/param_mesh.hpp"
#include "trireme/nn/layer.hpp"

namespace trireme {

/// Adds up what is partial over tp (and over the other axes that ParamSpec::partial names), in one all_reduce a group:
/// once, after the last backward of a step (a second time would add up the sums), before anything is summed over dp and
/// cp. Parameters of such a group without a gradient take part with zeros, so that every rank makes the same calls.
/// Sums of bf16 and f16 are made in f32.
void sum_partial_gradients(const std::vector<Param>& params, const ParamMesh& mesh);

/// A gradient wherever it is kept, of the parameter's local shape.
struct OwnGradient {
  const ParamSpec* spec = nullptr;
  at::Tensor value;
};
/// The same for gradients that are not in .grad.
void sum_partial_gradients(const std::vector<OwnGradient>& gradients, const ParamMesh& mesh);

/// Whether the gradient of such a parameter takes part in these sums.
bool has_partial_gradient(const ParamSpec& spec, const ParamMesh& mesh);

}  // namespace trireme
