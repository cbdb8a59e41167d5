#pragma once
// Helpers for tests of kernels/: compare a kernel with the composite of ATen operators that it replaces.
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"

namespace trireme::kernels::test {

using Tensors = std::vector<at::Tensor>;
using Map = std::function<at::Tensor(const Tensors&)>;

/// CPU, and a GPU if there is one: the same tests run on both.
inline std::vector<at::Device> devices() {
  std::vector<at::Device> all{at::kCPU};
  if (at::hasCUDA()) all.emplace_back(at::kCUDA, 0);
  return all;
}

/// Normal random numbers, f64, on the CPU.
inline at::Tensor normal(at::IntArrayRef sizes, std::uint64_t seed) {
  const RandomStream stream(seed, "kernels test");
  const at::Tensor x = at::empty(sizes, at::kDouble);
  double* const p = x.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < x.numel(); ++i) p[i] = stream.normal(static_cast<std::uint64_t>(i));
  return x;
}

struct Outcome {
  at::Tensor y;
  Tensors grads;  // undefined for inputs that are not differentiated
};

/// y and the gradients of its inputs for dy. Floating-point inputs are differentiated.
inline Outcome run(const Map& map, const Tensors& inputs, const std::function<at::Tensor(const at::Tensor& y)>& dy) {
  Tensors leaves;
  for (const at::Tensor& x : inputs) {
    const bool wanted = x.defined() && x.is_floating_point();
    leaves.push_back(x.defined() ? x.detach().clone().requires_grad_(wanted) : x);
  }
  Outcome of{map(leaves), {}};
  Tensors asked;
  for (const at::Tensor& x : leaves)
    if (x.defined() && x.requires_grad()) asked.push_back(x);
  const Tensors got = torch::autograd::grad({of.y}, asked, {dy(of.y)});
  std::size_t next = 0;
  for (const at::Tensor& x : leaves) of.grads.push_back(x.defined() && x.requires_grad() ? got[next++] : at::Tensor());
  return of;
}

/// The largest difference, relative to the largest magnitude in `truth` (at least 1e-3).
inline double difference(const at::Tensor& y, const at::Tensor& truth) {
  if (truth.numel() == 0) return y.sizes() == truth.sizes() ? 0 : 1;
  const at::Tensor wide = y.to(at::kCPU, at::kDouble);
  return ((wide - truth).abs().max() / truth.abs().max().clamp_min(1e-3)).item<double>();
}

/// A kernel, the composite it must equal, and its inputs in f64.
struct Subject {
  std::string name;
  Map ours, plain;
  Tensors inputs;
};

inline Tensors cast(const Subject& s, at::ScalarType dtype, at::Device device) {
  Tensors all;
  for (const at::Tensor& x : s.inputs)
    all.push_back(!x.defined() ? x : x.is_floating_point() ? x.to(device, dtype) : x.to(device));
  return all;
}

/// A gradient with the shape of y, whose values depend only on that shape.
inline at::Tensor plain_dy(const at::Tensor& y) { return normal(y.sizes(), 99).to(y.device(), y.scalar_type()); }

/// Compares values and all gradients of `s` in `dtype` with the composite in f64 on the same (rounded) inputs.
inline void expect_equals_plain(const Subject& s, at::ScalarType dtype, double tolerance) {
  for (const at::Device device : devices()) {
    SCOPED_TRACE(text(s.name, " in ", dtype, " on ", device));
    const Tensors inputs = cast(s, dtype, device);
    Tensors truth_inputs;
    for (const at::Tensor& x : inputs)
      truth_inputs.push_back(x.defined() && x.is_floating_point() ? x.to(at::kCPU, at::kDouble)
                             : x.defined()                        ? x.cpu()
                                                                  : x);
    const Outcome ours = run(s.ours, inputs, plain_dy);
    const Outcome truth = run(s.plain, truth_inputs, [&](const at::Tensor& y) {
      return plain_dy(ours.y).to(at::kCPU, at::kDouble).view(y.sizes());
    });
    ASSERT_EQ(ours.y.sizes(), truth.y.sizes());
    EXPECT_LE(difference(ours.y, truth.y), tolerance) << "y";
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!truth.grads[i].defined()) continue;
      EXPECT_EQ(ours.grads[i].scalar_type(), dtype) << "gradient of input " << i;
      EXPECT_LE(difference(ours.grads[i], truth.grads[i]), tolerance) << "gradient of input " << i;
    }
  }
}

/// In f64, f32, bf16 and f16. On a CPU, bf16 and f16 round once: half a unit in the last of 8 and 11 bits. ATen's
/// operators on CUDA round at each step.
inline void expect_equals_plain(const Subject& s) {
  expect_equals_plain(s, at::kDouble, 1e-12);
  expect_equals_plain(s, at::kFloat, 1e-5);
  expect_equals_plain(s, at::kBFloat16, at::hasCUDA() ? 2e-2 : 0x1.1p-8);
  expect_equals_plain(s, at::kHalf, at::hasCUDA() ? 4e-3 : 0x1.1p-11);
}

inline void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_TRUE(at::equal(a.y, b.y)) << "y";
  for (std::size_t i = 0; i < a.grads.size(); ++i)
    EXPECT_TRUE(!a.grads[i].defined() || at::equal(a.grads[i], b.grads[i])) << "gradient of input " << i;
}

/// Gradients may have any strides, including expanded ones.
inline void expect_takes_any_gradient(const Subject& s) {
  const Tensors inputs = cast(s, at::kFloat, at::kCPU);
  const auto transposed = [](const at::Tensor& y) { return plain_dy(y).mT().contiguous().mT(); };
  const auto shifted = [](const at::Tensor& y) {  // a view into a larger tensor
    const at::Tensor larger = at::full({y.size(0), y.numel() / y.size(0) + 3}, 7.0, y.options());
    larger.narrow(1, 1, y.numel() / y.size(0)).copy_(plain_dy(y).view({y.size(0), -1}));
    return larger.narrow(1, 1, y.numel() / y.size(0)).view(y.sizes());
  };
  const auto expanded = [](const at::Tensor& y) { return at::full({}, 0.5, y.options()).expand(y.sizes()); };
  const auto filled = [](const at::Tensor& y) { return at::full(y.sizes(), 0.5, y.options()); };
  SCOPED_TRACE(s.name);
  const Outcome usual = run(s.ours, inputs, plain_dy);
  if (usual.y.dim() >= 2) {
    expect_same_bits(run(s.ours, inputs, transposed), usual);
    if (usual.y.dim() == 2) expect_same_bits(run(s.ours, inputs, shifted), usual);
  }
  expect_same_bits(run(s.ours, inputs, expanded), run(s.ours, inputs, filled));
}

/// Whether results may depend on the number of threads. A BLAS may add in another order with more of them, as MKL does
/// for small products on AMD processors with AVX-512.
enum class WithThreads { same_bits, rounding };

/// The same with one, two and three threads.
inline void expect_same_with_any_threads(const Subject& s, WithThreads with) {
  SCOPED_TRACE(s.name);
  const Tensors inputs = cast(s, at::kFloat, at::kCPU);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Outcome one = run(s.ours, inputs, plain_dy);
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    const Outcome other = run(s.ours, inputs, plain_dy);
    if (with == WithThreads::same_bits) {
      expect_same_bits(other, one);
      continue;
    }
    constexpr double kRounding = 1e-6;  // of f32
    EXPECT_LE(difference(other.y, one.y.to(at::kDouble)), kRounding) << "y";
    for (std::size_t i = 0; i < one.grads.size(); ++i) {
      if (!one.grads[i].defined()) continue;
      EXPECT_LE(difference(other.grads[i], one.grads[i].to(at::kDouble)), kRounding) << "gradient of input " << i;
    }
  }
  at::set_num_threads(before);
}

/// No autograd node if not needed: grad mode off, or no input requires grad. Double backward is rejected.
inline void expect_node_only_when_needed(const Subject& s) {
  SCOPED_TRACE(s.name);
  Tensors inputs = cast(s, at::kFloat, at::kCPU);
  EXPECT_FALSE(s.ours(inputs).requires_grad());
  for (at::Tensor& x : inputs)
    if (x.defined() && x.is_floating_point()) x.requires_grad_();
  const at::Tensor y = s.ours(inputs);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_THROW(torch::autograd::grad({y}, {inputs[0]}, {at::ones_like(y)}, true, /*create_graph=*/true), InternalError);
  const at::NoGradGuard off;
  EXPECT_FALSE(s.ours(inputs).requires_grad());
}

/// Which inputs the graph of y alone keeps alive. Backward must work without the others.
inline std::vector<bool> inputs_kept(const Subject& s) {
  SCOPED_TRACE(s.name);
  Tensors leaves, inputs;  // inputs are not leaves: those are kept alive by their AccumulateGrad nodes
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages;
  for (const at::Tensor& x : cast(s, at::kFloat, at::kCPU)) {
    leaves.push_back(x.is_floating_point() ? x.detach().requires_grad_() : x);
    inputs.push_back(leaves.back() + 0);
    storages.emplace_back(inputs.back().storage().getWeakStorageImpl());
  }
  const at::Tensor y = s.ours(inputs);
  inputs.clear();
  std::vector<bool> kept;
  for (const auto& storage : storages) kept.push_back(!storage.expired());
  y.sum().backward();
  for (const at::Tensor& x : leaves) EXPECT_EQ(x.grad().defined(), x.is_floating_point());
  return kept;
}

/// All checks for a differentiable kernel.
inline void expect_all(const Subject& s, WithThreads with = WithThreads::same_bits) {
  expect_equals_plain(s);
  expect_takes_any_gradient(s);
  expect_same_with_any_threads(s, with);
  expect_node_only_when_needed(s);
}

}  // namespace trireme::kernels::test
