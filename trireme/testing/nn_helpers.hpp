#pragma once
// Helpers for tests of layers.
#include <functional>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/tensor/full_tensor.hpp"
#include "trireme/parallel/tensor/gradients.hpp"
#include "trireme/testing/gradcheck.hpp"

namespace trireme {

/// Runs `body` on tp ranks as threads, with new layers in f64.
inline void on_tp(int ranks, const std::function<void(Mesh&)>& body) {
  run_ranks(ranks, [&](World& world) {
    const Grid grid = Grid::dense({.tp = ranks});
    Mesh mesh(grid, world, {}, expert_view(grid, 1));
    const InitScope f64(at::kCPU, at::kDouble);
    body(mesh);
  });
}

/// Layout-independent weights, large enough that every path affects the result.
inline void fill(torch::nn::Module& module, Mesh& mesh) {
  init_parameters(module, mesh, {.seed = 7, .scheme = InitScheme::plain});
}

inline double relative(const at::Tensor& a, const at::Tensor& b) { return ((a - b).norm() / b.norm()).item<double>(); }

using Gradients = std::map<std::string, at::Tensor>;

/// The full gradients of all parameters after backward. Collective. Fails if ranks disagree.
inline Gradients whole_gradients(const torch::nn::Module& module, Mesh& mesh) {
  const std::vector<Param> params = params_of(module);
  sum_partial_gradients(params, mesh);
  Gradients grads;
  for (const Param& param : params) {
    const FullTensor whole = gather_full_tensor(param.value.grad(), param.spec, mesh);
    EXPECT_EQ(whole.disagreement, 0) << param.name;
    grads[param.name] = whole.value;
  }
  return grads;
}

inline void expect_close(const Gradients& found, const Gradients& wanted, double bound = 1e-12) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, grad] : wanted) EXPECT_LT(relative(found.at(name), grad), bound) << name;
}

}  // namespace trireme
