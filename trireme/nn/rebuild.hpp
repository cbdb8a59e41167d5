#pragma once
// An activation that is cheaper to make again than to keep: selective recompute.
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme {

/// How to make a tensor again, bit for bit, from tensors that are kept anyway: the output of a norm from its input, the
/// product of an MLP from its factors. A layer that would keep the tensor for its backward keeps this instead.
struct Rebuild {
  std::vector<at::Tensor> from;
  std::function<at::Tensor(const std::vector<at::Tensor>& from)> make;  // called without grad
};
using MaybeRebuild = std::optional<Rebuild>;

}  // namespace trireme
