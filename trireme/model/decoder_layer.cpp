#include "trireme/model/decoder_layer.hpp"

#include <algorithm>

namespace trireme {

at::Tensor run_layer(DecoderLayer& layer, const at::Tensor& x_tD, TokenFacts tokens, config::Recompute mode,
                     RecomputeOptions again) {
  tokens.selective = mode == config::Recompute::selective;
  if (mode != config::Recompute::full) return layer.forward(x_tD, tokens);
  // What is frozen up to here stores nothing, and its output must not need a gradient.
  const auto needs_gradient = [](const at::Tensor& x) { return x.requires_grad(); };
  if (!needs_gradient(x_tD) && std::ranges::none_of(layer.parameters(), needs_gradient))
    return layer.forward(x_tD, tokens);
  tokens.context.chosen_experts = std::make_shared<at::Tensor>();
  return recompute([&layer, tokens](const at::Tensor& x) { return layer.forward(x, tokens); }, again, x_tD);
}

}  // namespace trireme
