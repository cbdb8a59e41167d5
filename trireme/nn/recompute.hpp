#pragma once
// Activations made again in backward instead of kept: a call whose inputs alone are saved.
#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme {

struct RecomputeOptions {
  /// Draw the same numbers again from libtorch's default generators (CPU and the current CUDA device). Layers of this
  /// library draw none from them; ranks as threads share them.
  bool preserve_rng = true;
};

using RecomputeBody = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// body(inputs), of which only the inputs are kept; backward runs the body again, with autocast and random numbers as
/// they were, and goes back through it: gradients are the same bits as without. What the body captures must outlive the
/// graph. Gradients of captured parameters are accumulated, those of `inputs` (1 to 4 tensors) returned to who asked.
/// With grad off: body(inputs).
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
