#include "trireme/nn/recompute.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

namespace trireme {
namespace {

struct Net : torch::nn::Module {
  Net() { linear = register_module("linear", torch::nn::Linear(8, 8)); }
  at::Tensor forward(const at::Tensor& x) {
    const auto body = [this](const at::Tensor& in) {
      ++runs;
      return at::dropout(at::relu(linear(in)), 0.5, /*train=*/true);
    };
    return do_checkpoint ? recompute(body, {}, x) : body(x);
  }
  bool do_checkpoint = false;
  int runs = 0;
  torch::nn::Linear linear{nullptr};
};

TEST(Recompute, GivesTheSameBitsWithDropoutFromTheGenerator) {
  Net net;
  std::vector<at::Tensor> y, dx, dw;
  std::vector<float> next;
  for (const bool again : {false, true}) {
    net.do_checkpoint = again;  // read in each call
    net.zero_grad();
    torch::manual_seed(3);
    const at::Tensor x = at::arange(32, at::kFloat).view({4, 8}).div(32).set_requires_grad(true);
    const at::Tensor out = net.forward(net.forward(x));
    const at::Tensor other = at::rand({4, 8});  // advances the generator between forward and backward
    (out * other).sum().backward();
    y.push_back(out.detach());
    dx.push_back(x.grad());
    dw.push_back(net.linear->weight.grad().clone());
    next.push_back(at::rand({1}).item<float>());
  }
  EXPECT_EQ(net.runs, 2 + 4);
  EXPECT_TRUE(y[0].equal(y[1]));
  EXPECT_TRUE(dx[0].equal(dx[1]));
  EXPECT_TRUE(dw[0].equal(dw[1]));
  EXPECT_EQ(next[0], next[1]);  // backward leaves the generator where it was
}

TEST(Recompute, RestoresAutocast) {
  const at::Tensor w = at::randn({8, 8}).set_requires_grad(true), x = at::randn({4, 8}).set_requires_grad(true);
  std::vector<at::ScalarType> seen;
  const auto body = [&](const at::Tensor& in) {
    const at::Tensor y = at::linear(in, w);
    seen.push_back(y.scalar_type());
    return y;
  };
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor y = recompute(body, {}, x);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  y.sum().backward();
  EXPECT_EQ(seen, (std::vector<at::ScalarType>{at::kBFloat16, at::kBFloat16}));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(Recompute, WorksWhereNoInputRequiresGrad) {
  const at::Tensor w = at::randn({8}).set_requires_grad(true), x = at::randn({8});
  recompute([&](const at::Tensor& in) { return in * w; }, {}, x).sum().backward();
  EXPECT_TRUE(w.grad().equal(x));
}

TEST(Recompute, GoesPastWhatIsFrozen) {
  const at::Tensor frozen = at::randn({8}), x = at::randn({8}), w = at::randn({8}).set_requires_grad(true);
  const at::Tensor y = recompute([&](const at::Tensor& in) { return in * frozen; }, {}, x);
  (y * w).sum().backward();
  EXPECT_TRUE(w.grad().equal(x * frozen));
}

TEST(Recompute, KeepsNothingWithoutGrad) {
  const at::NoGradGuard off;
  int runs = 0;
  const at::Tensor y = recompute(
      [&](const at::Tensor& in) {
        ++runs;
        return in + 1;
      },
      {}, at::ones({2}));
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(runs, 1);
}

TEST(Recompute, TakesSeveralInputsAndReturnsOneOfThem) {
  const at::Tensor a = at::ones({3}).set_requires_grad(true), b = at::full({3}, 2.0F), c = a * 3;
  const at::Tensor y =
      recompute([](const at::Tensor& p, const at::Tensor& q, const at::Tensor& r) { return p * q * r; }, {}, a, b, c);
  y.sum().backward();
  EXPECT_TRUE(a.grad().equal(at::full({3}, 12.0F)));
  const at::Tensor same = recompute([](const at::Tensor& in) { return in; }, {}, c.detach().set_requires_grad(true));
  same.sum().backward();
}

TEST(Recompute, ASecondBackwardIsRefused) {
  const at::Tensor x = at::ones({3}).set_requires_grad(true);
  const at::Tensor y = recompute([](const at::Tensor& in) { return in * in; }, {}, x).sum();
  y.backward();
  EXPECT_ANY_THROW(y.backward());
}

}  // namespace
}  // namespace trireme
