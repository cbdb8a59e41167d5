#include "trireme/kernels/optimizer/optimizer_step.hpp"

#include <cmath>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "trireme/testing/kernels_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::kernels {
namespace {

constexpr std::int64_t kSizes[] = {0, 1, 7, 37, 4097, 50'000};

/// Ten steps of libtorch's optimizer and of ours, on the same gradients.
template <class Theirs, class Ours>
double difference(std::int64_t n, at::ScalarType dtype, const Theirs& theirs, const Ours& ours) {
  const at::Tensor start = test::normal({n}, 1).to(dtype);
  at::Tensor reference = start.clone().requires_grad_(), mine = start.clone();
  auto optimizer = theirs(reference);
  for (int step = 1; step <= 10; ++step) {
    const at::Tensor g = test::normal({n}, 10 + static_cast<std::uint64_t>(step)).to(dtype);
    reference.mutable_grad() = g.clone();
    optimizer->step();
    ours({mine, g, {}}, step);
  }
  return n == 0 ? 0 : (reference.detach() - mine).abs().max().template item<double>();
}

TEST(AdamStep, IsLibtorchs) {
  for (const bool decoupled : {true, false})
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat})
      for (const std::int64_t n : kSizes) {
        const at::Tensor m = at::zeros({n}, dtype), v = at::zeros({n}, dtype);
        const auto theirs = [&](const at::Tensor& w) -> std::unique_ptr<torch::optim::Optimizer> {
          if (decoupled)
            return std::make_unique<torch::optim::AdamW>(
                std::vector{w}, torch::optim::AdamWOptions(0.01).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.1));
          return std::make_unique<torch::optim::Adam>(
              std::vector{w}, torch::optim::AdamOptions(0.01).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.1));
        };
        const auto ours = [&](const StepSlices& slices, int step) {
          adam_step(
              slices, m, v,
              {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .decoupled = decoupled, .step = step});
        };
        EXPECT_LE(difference(n, dtype, theirs, ours), dtype == at::kDouble ? 1e-14 : 2e-6)
            << n << " " << dtype << decoupled;
      }
}

TEST(SgdStep, IsLibtorchs) {
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true})
      for (const std::int64_t n : kSizes) {
        if (nesterov && momentum == 0) continue;
        const at::Tensor u = momentum > 0 ? at::zeros({n}, at::kDouble) : at::Tensor();
        const auto theirs = [&](const at::Tensor& w) -> std::unique_ptr<torch::optim::Optimizer> {
          return std::make_unique<torch::optim::SGD>(
              std::vector{w}, torch::optim::SGDOptions(0.1).momentum(momentum).weight_decay(0.01).nesterov(nesterov));
        };
        const auto ours = [&](const StepSlices& slices, int step) {
          sgd_step(slices, u,
                   {.lr = 0.1, .momentum = momentum, .weight_decay = 0.01, .nesterov = nesterov, .step = step});
        };
        EXPECT_LE(difference(n, at::kDouble, theirs, ours), 1e-14) << momentum << nesterov << n;
      }
}

TEST(OptimizerStep, GradientsMomentsAndCopiesMayBeSmaller) {
  const std::int64_t n = 1000;
  const at::Tensor w = test::normal({n}, 1).to(at::kFloat), g = test::normal({n}, 2).to(at::kBFloat16);
  const at::Tensor m = test::normal({n}, 3).to(at::kBFloat16), v = test::normal({n}, 4).square().to(at::kBFloat16);
  const AdamNumbers numbers{.lr = 0.1, .weight_decay = 0.1, .step = 3};
  for (const at::ScalarType small : {at::kBFloat16, at::kHalf}) {
    at::Tensor w1 = w.clone(), m1 = m.clone(), v1 = v.clone(), copy = at::empty({n}, small);
    adam_step({w1, g, copy}, m1, v1, numbers);
    at::Tensor w2 = w.clone(), m2 = m.to(at::kFloat), v2 = v.to(at::kFloat);
    adam_step({w2, g.to(at::kFloat), {}}, m2, v2, numbers);
    EXPECT_TRUE(w1.equal(w2));                                                      // computed in the same way
    EXPECT_TRUE(m1.equal(m2.to(at::kBFloat16)) && v1.equal(v2.to(at::kBFloat16)));  // and rounded once
    EXPECT_TRUE(copy.equal(w2.to(small)));
  }
}

TEST(OptimizerStep, TheFactorScalesOrSkips) {
  const std::int64_t n = 100;
  const at::Tensor g = test::normal({n}, 2);
  at::Tensor w = test::normal({n}, 1), m = at::zeros({n}, at::kDouble), v = at::zeros({n}, at::kDouble);
  at::Tensor w2 = w.clone(), m2 = m.clone(), v2 = v.clone();
  adam_step({w, g, {}}, m, v, {.lr = 0.1}, {at::scalar_tensor(0.25, at::kDouble)});
  adam_step({w2, g * 0.25, {}}, m2, v2, {.lr = 0.1});
  EXPECT_TRUE(w.equal(w2) && m.equal(m2) && v.equal(v2));
  adam_step({w, g, {}}, m, v, {.lr = 0.1, .step = 2}, {at::scalar_tensor(std::nan(""))});
  sgd_step({w, g, {}}, {}, {.lr = 0.1}, {at::scalar_tensor(std::nan(""))});
  EXPECT_TRUE(w.equal(w2) && m.equal(m2) && v.equal(v2));
}

TEST(OptimizerStep, IsTheFormulaOnEveryDevice) {
  const std::int64_t n = 5000;
  const at::Tensor w = test::normal({n}, 1), m = test::normal({n}, 2), v = m * m, u = test::normal({n}, 4),
                   g = test::normal({n}, 3);
  const at::Tensor h = g * 0.5, m1 = 0.9 * m + 0.1 * h, v1 = 0.999 * v + 0.001 * h * h;
  const at::Tensor w1 =
      w * (1 - 0.1 * 0.2) - 0.1 * (m1 / (1 - std::pow(0.9, 4))) / ((v1 / (1 - std::pow(0.999, 4))).sqrt() + 1e-8);
  const at::Tensor u1 = 0.9 * u + h, w2 = w1 - 0.1 * (h + 0.9 * u1);
  const at::Tensor updated = at::cat({w2, m1, v1, u1}), as_before = at::cat({w, m, v, u});
  for (const at::Device device : test::devices())
    for (const bool skip : {false, true}) {
      const auto on_device = [&](const at::Tensor& x) { return x.clone().to(device); };
      const at::Tensor weight = on_device(w), first = on_device(m), second = on_device(v), velocity = on_device(u),
                       grad = on_device(g);
      const GradientFactor factor{on_device(at::scalar_tensor(skip ? std::nan("") : 0.5, at::kDouble))};
      adam_step({weight, grad, {}}, first, second, {.lr = 0.1, .weight_decay = 0.2, .step = 4}, factor);
      sgd_step({weight, grad, {}}, velocity, {.lr = 0.1, .momentum = 0.9, .nesterov = true, .step = 2}, factor);
      const at::Tensor result = at::cat({weight, first, second, velocity}).cpu();
      EXPECT_LE((result - (skip ? as_before : updated)).abs().max().item<double>(), skip ? 0 : 1e-13) << device;
    }
}

TEST(OptimizerStep, ManySlicesAreUpdatedAsEachAlone) {
  // More than fit into one launch, of one and of several thread blocks, aligned or not, with and without a copy.
  const AdamNumbers numbers{.lr = 0.1, .step = 3};
  for (const at::Device device : test::devices()) {
    std::vector<AdamSlice> together, alone;
    for (std::int64_t i = 0; i < 75; ++i) {
      const std::int64_t n = i % 7 == 0 ? 5000 + i : 3 * i, before = i % 5;
      const auto some = [&](std::int64_t seed, at::ScalarType dtype) {
        return test::normal({before + n}, static_cast<int>(10 * i + seed)).to(dtype).to(device).narrow(0, before, n);
      };
      const at::ScalarType small = i < 40 ? at::kBFloat16 : at::kHalf;
      const AdamSlice slice{{some(1, at::kFloat), some(2, small), i % 3 == 0 ? at::Tensor() : some(3, small)},
                            some(4, at::kFloat),
                            some(5, at::kFloat).square(),
                            i % 2 == 0 ? 0.1 : 0.0};
      const auto copy = [](const at::Tensor& x) { return x.defined() ? x.clone() : x; };
      together.push_back(slice);
      alone.push_back({{copy(slice.values.weight), slice.values.gradient, copy(slice.values.model)},
                       copy(slice.m),
                       copy(slice.v),
                       slice.weight_decay});
    }
    adam_steps(together, numbers);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      AdamNumbers own = numbers;
      own.weight_decay = alone[i].weight_decay;
      adam_step(alone[i].values, alone[i].m, alone[i].v, own);
      EXPECT_TRUE(together[i].values.weight.equal(alone[i].values.weight)) << device << " " << i;
      EXPECT_TRUE(together[i].m.equal(alone[i].m) && together[i].v.equal(alone[i].v)) << device << " " << i;
      if (alone[i].values.model.defined()) {
        EXPECT_TRUE(together[i].values.model.equal(alone[i].values.model)) << device << " " << i;
      }
    }
  }
}

TEST(OptimizerStep, SaysWhatIsWrong) {
  const at::Tensor w = at::zeros({4}), other = at::zeros({5});
  EXPECT_THAT(message_of<InternalError>([&] { adam_step({w, other, {}}, w, w, {}); }),
              testing::HasSubstr("gradient of 5 elements on cpu beside 4 weights"));
  EXPECT_THAT(message_of<InternalError>([&] { adam_step({w, w.to(at::kDouble), {}}, w, w, {}); }),
              testing::HasSubstr("double goes with double alone"));
  EXPECT_THAT(message_of<InternalError>([&] { sgd_step({w, w, {}}, {}, {.momentum = 0.9}); }),
              testing::HasSubstr("momentum 0.9 without its state"));
  EXPECT_THAT(message_of<InternalError>([&] { adam_step({w.to(at::kBFloat16), w, {}}, w, w, {}); }),
              testing::HasSubstr("must be float or double"));
}

}  // namespace
}  // namespace trireme::kernels
