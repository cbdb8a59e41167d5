#pragma once
// Models of pipeline blocks for tests: small, in f64, with the same values wherever their blocks are.
#include <string>
#include <vector>

#include <torch/nn/modules/linear.h>

#include "trireme/base/fnv.hpp"
#include "trireme/parallel/pipeline/pipeline_engine.hpp"
#include "trireme/testing/zero_helpers.hpp"

namespace trireme::test {

constexpr std::int64_t kWidth = 5;

/// Its values depend on the name only.
inline torch::nn::Linear named_linear(const std::string& name) {
  torch::nn::Linear linear(kWidth, kWidth);
  linear->to(at::kDouble);
  const at::NoGradGuard no_grad;
  std::uint64_t seed = fnv1a(name);
  for (const at::Tensor& parameter : linear->parameters())
    parameter.copy_(normal_numbers(parameter.sizes(), ++seed) * 0.4);
  return linear;
}

inline PipelineBlock dense_block(PipelineP2P& p2p, const std::string& name) {
  return PipelineBlock({.p2p = p2p,
                        .name = name,
                        .module_builder = [name] { return named_linear(name); },
                        .module_input_keys = {"input"},
                        .module_output_keys = {"output"}});
}

/// The model of nanotron's documentation.
struct DummyModel {
  explicit DummyModel(PipelineP2P& p2p)
      : dense1(dense_block(p2p, "dense1")),
        dense2(dense_block(p2p, "dense2")),
        loss({.p2p = p2p,
              .name = "loss",
              .module_builder = [] { return [](const at::Tensor& x) { return x.sum(); }; },
              .module_input_keys = {"x"},
              .module_output_keys = {"output"}}) {}

  void build_and_set_ranks(int first, int second, int third) {
    dense1.build_and_set_rank(first);
    dense2.build_and_set_rank(second);
    loss.build_and_set_rank(third);
  }

  TensorOrPointer forward(TensorOrPointer x) const {
    x = dense1({{"input", x}})["output"];
    x = dense2({{"input", x}})["output"];
    x = loss({{"x", x}})["output"];
    return x;
  }

  PipelineBlock dense1, dense2, loss;
};

/// The tensor on its rank, a pointer to it elsewhere.
inline TensorOrPointer on_rank(int owner, const PipelineP2P& p2p, const at::Tensor& tensor) {
  if (p2p.rank() == owner) return tensor;
  return TensorPointer{.group_rank = owner};
}

}  // namespace trireme::test
