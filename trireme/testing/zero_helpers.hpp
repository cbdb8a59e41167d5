#pragma once
// A small model for tests of zero/: odd sizes, small parameters, units, and an unused parameter.
#include <map>
#include <string>
#include <vector>

#include <torch/nn/modules/linear.h>

#include "trireme/base/philox.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/nn/layer.hpp"
#include "trireme/nn/unit.hpp"

namespace trireme::test {

inline at::Tensor normal_numbers(at::IntArrayRef sizes, std::uint64_t seed) {
  const RandomStream stream(seed, "net");
  const at::Tensor out = at::empty(sizes, at::kDouble);
  double* data = out.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < out.numel(); ++i) data[i] = stream.normal(static_cast<std::uint64_t>(i));
  return out;
}

/// Layers 37 -> 37, each with a bias and a "norm" weight; the first is used again at the end, like a tied head. The
/// second, and the first in its second use, write their weight gradients in place.
class UnitNet : public torch::nn::Module {
 public:
  explicit UnitNet(std::int64_t layers = 3, at::ScalarType dtype = at::kDouble) {
    unused_ = register_parameter("unused", at::zeros({5}));
    for (std::int64_t i = 0; i < layers; ++i) {
      layers_.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(37, 37)));
      norms_.push_back(register_parameter("norm" + std::to_string(i), at::ones({37})));
    }
    const at::NoGradGuard no_grad;
    std::uint64_t seed = 1;
    for (const auto& item : named_parameters()) item.value().copy_(normal_numbers(item.value().sizes(), seed++) * 0.3);
    to(dtype);
  }

  at::Tensor loss(const at::Tensor& rows) {
    at::Tensor x = rows.to(layers_[0]->weight.scalar_type());
    for (std::size_t i = 0; i < layers_.size(); ++i)
      x = in_unit(hooks_, {i}, [&] { return ((i == 1 ? in_place(i, x) : layers_[i](x)) * norms_[i]).tanh() + x; });
    x = in_unit(hooks_, {0}, [&] { return in_place(0, x); });
    return x.square().sum();
  }

  UnitPlan units(UnitHooks* hooks = nullptr) {
    hooks_ = hooks;
    UnitPlan plan;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::string number = std::to_string(i);
      plan.units.push_back(
          {"layer" + number, {"layer" + number + ".weight", "layer" + number + ".bias", "norm" + number}});
      plan.visits.push_back({i});
    }
    plan.units[0].params.push_back("unused");
    plan.visits.push_back({0});
    return plan;
  }

 private:
  at::Tensor in_place(std::size_t i, const at::Tensor& x) {
    return kernels::linear(x, layers_[i]->weight, layers_[i]->bias);
  }

  at::Tensor unused_;
  std::vector<torch::nn::Linear> layers_;
  std::vector<at::Tensor> norms_;
  UnitHooks* hooks_ = nullptr;
};

constexpr std::int64_t kRows = 24;
inline at::Tensor rows(std::int64_t step = 0) {
  return normal_numbers({kRows, 37}, 99 + static_cast<std::uint64_t>(step)) * 0.5;
}

}  // namespace trireme::test
