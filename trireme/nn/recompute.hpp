#pragma once
// Activation recomputation (gradient checkpointing): only the inputs of a call are stored, and backward runs it again.
#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme {

struct RecomputeOptions {
  /// Restore the state of libtorch's default generators (CPU and the current CUDA device) for the second run. Layers of
  /// this library do not use them; ranks that are threads of one process share them.
  bool preserve_rng = true;
};

using RecomputeBody = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// body(inputs), storing only the inputs; backward runs the body again, with the same autocast state and random
/// numbers, and backpropagates through it: gradients are bitwise the same as without. Captured objects must outlive the
/// graph. Gradients of captured parameters are accumulated, those of `inputs` (1 to 4 tensors) are returned. With grad
/// disabled: body(inputs).
at::Tensor recompute(const RecomputeBody& body, const RecomputeOptions& options, const std::vector<at::Tensor>& inputs);

template <class Body, class... Tensors>
at::Tensor recompute(const Body& body, const RecomputeOptions& options, const at::Tensor& x, const Tensors&... more) {
  return recompute(RecomputeBody([body](const std::vector<at::Tensor>& in) {
                     return [&]<std::size_t... kI>(std::index_sequence<kI...>) {
                       return body(in[kI]...);
                     }(std::make_index_sequence<1 + sizeof...(more)>());
                   }),
                   options, std::vector<at::Tensor>{x, more...});
}

}  // namespace trireme
