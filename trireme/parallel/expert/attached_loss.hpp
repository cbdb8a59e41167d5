#pragma once
// A loss of a layer in the middle of a model, whose gradient is added where backward passes the layer.
#include <functional>

#include <ATen/core/Tensor.h>

namespace trireme {

/// y. In backward, `loss` gets the gradient gradient(), of the same sizes, and y that of the result: as if a function
/// of `loss` were added to the model's loss, which another pipeline stage may compute. The model's loss must depend on
/// y.
at::Tensor attach_loss(const at::Tensor& y, const at::Tensor& loss, std::function<at::Tensor()> gradient);

}  // namespace trireme
