#pragma once
// A parameter, or its gradient, put together from the parts of all ranks: for comparing layouts and for looking at.
#include "trireme/comm/param_mesh.hpp"
#include "trireme/nn/layer.hpp"

namespace trireme {

struct FullTensor {
  at::Tensor value;     // on every rank
  double disagreement;  // the largest difference between two ranks that keep the same element
};

/// All ranks along the axes that cut it, and along tp, call it together. `local` is a tensor as `spec` describes.
FullTensor gather_full_tensor(const at::Tensor& local, const ParamSpec& spec, const ParamMesh& mesh);

}  // namespace trireme
