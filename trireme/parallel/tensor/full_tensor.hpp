#pragma once
// A parameter, or its gradient, whole: gathered from the shards of all ranks, and cut into them.
#include "trireme/comm/param_mesh.hpp"
#include "trireme/nn/layer.hpp"

namespace trireme {

struct FullTensor {
  at::Tensor value;     // on every rank
  double disagreement;  // the largest difference between two ranks that hold the same element
};

/// Collective over all ranks along the axes that shard it, and along tp. `local` is a local tensor as `spec` describes.
FullTensor gather_full_tensor(const at::Tensor& local, const ParamSpec& spec, const ParamMesh& mesh);

/// The inverse: `local` gets what this rank holds of the full parameter.
void copy_own_part(const at::Tensor& full, const ParamSpec& spec, const ParamMesh& mesh, const at::Tensor& local);

}  // namespace trireme
