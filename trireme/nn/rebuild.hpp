#pragma once
// Selective recomputation: an activation that is cheaper to recompute than to store.
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme {

/// Recomputes a tensor bitwise from tensors that are stored anyway: the output of a norm from its input, the product in
/// an MLP from its factors. A layer that would store the tensor for its backward stores this instead.
struct Rebuild {
  std::vector<at::Tensor> from;
  std::function<at::Tensor(const std::vector<at::Tensor>& from)> make;  // called without grad
};
using MaybeRebuild = std::optional<Rebuild>;

}  // namespace trireme
