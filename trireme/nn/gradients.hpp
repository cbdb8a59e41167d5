#pragma once
// Sums partial gradients over the model-parallel ranks: of norm weights with sequence parallelism, and of KV heads that
// several ranks hold. ParamSpec::partial alone decides which gradients are partial.
#include "trireme/comm/param_mesh.hpp"
#include "trireme/nn/layer.hpp"

namespace trireme {

/// All-reduces partial gradients over tp (and over the other axes in ParamSpec::partial), with one all_reduce per
/// group: once, after the last backward of a step (a second call would sum the sums), before the reduction over dp and
/// cp. Parameters of such a group without a gradient take part with zeros, so that every rank makes the same calls.
/// bf16 and f16 are summed in f32.
void sum_partial_gradients(const std::vector<Param>& params, const ParamMesh& mesh);

/// A gradient stored anywhere, with the parameter's local shape.
struct OwnGradient {
  const ParamSpec* spec = nullptr;
  at::Tensor value;
};
/// The same for gradients that are not in .grad.
void sum_partial_gradients(const std::vector<OwnGradient>& gradients, const ParamMesh& mesh);

/// Whether this parameter has a partial gradient, which is summed here.
bool has_partial_gradient(const ParamSpec& spec, const ParamMesh& mesh);

}  // namespace trireme
