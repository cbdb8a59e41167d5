// What happens to the hooks of DataParallel when programs do other things than one backward per step.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/lbfgs.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/module/data_parallel.hpp"
#include "trireme/nn/recompute.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

struct TwoLayersImpl : torch::nn::Module {
  TwoLayersImpl() : first(3, 4), last(4, 2) {
    register_module("first", first);
    register_module("last", last);
    to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (at::Tensor parameter : parameters())
      parameter.copy_((at::arange(parameter.numel(), at::kDouble) * 0.9).sin().view(parameter.sizes()));
  }
  at::Tensor forward(const at::Tensor& x) { return last(first(x).tanh()); }
  torch::nn::Linear first, last;
};
TORCH_MODULE(TwoLayers);

at::Tensor rows_for(int rank, int step) {
  return ((at::arange(6, at::kDouble) + 5.0 * rank + 11.0 * step) * 0.37).sin().view({2, 3});
}

using NetCall = std::function<at::Tensor(TwoLayersImpl&, const at::Tensor&)>;

std::vector<at::Tensor> gradients_of(torch::nn::Module& net) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& parameter : net.parameters()) out.push_back(parameter.grad().clone());
  return out;
}

/// The sum over ranks and backwards, by one process.
std::vector<at::Tensor> sums_alone(int ranks, int backwards, const NetCall& call) {
  TwoLayers net;
  for (int rank = 0; rank < ranks; ++rank)
    for (int step = 0; step < backwards; ++step) call(*net, rows_for(rank, step)).square().sum().backward();
  return gradients_of(*net);
}

void expect_gradients(torch::nn::Module& net, const std::vector<at::Tensor>& wanted, double scale) {
  const std::vector<at::Tensor> found = gradients_of(net);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_TRUE(found[i].allclose(wanted[i] * scale, 1e-12, 1e-14)) << i << ": " << found[i] << wanted[i] * scale;
}

/// Gradients that were reduced may be added to, by other backwards with and without no_sync().
TEST(DataParallelHooks, BackwardsWithoutZeroGrad) {
  const NetCall plain = [](TwoLayersImpl& net, const at::Tensor& x) { return net.forward(x); };
  const std::vector<at::Tensor> wanted = sums_alone(2, 4, plain);
  for (const GradientScale gradients : {GradientScale::sum, GradientScale::mean})
    run_ranks(2, [&](Group& group) {
      TwoLayers net;
      const auto parallel = data_parallel(net, group, {.gradients = gradients});
      for (int step = 0; step < 4; ++step) {
        std::optional<DataParallel::NoSync> alone;
        if (step == 2) alone.emplace(parallel);
        const at::Tensor loss = net->forward(rows_for(group.rank(), step)).square().sum();
        // Only returns gradients: what the parameters have stays as it is.
        torch::autograd::grad({loss}, {net->last->weight}, {}, /*retain_graph=*/true);
        loss.backward();
      }
      expect_gradients(*net, wanted, gradients == GradientScale::mean ? 0.5 : 1);
    });
}

/// recompute() has a backward of its own within backward, and a module may be in several of them.
TEST(DataParallelHooks, Recompute) {
  const auto again = [](torch::nn::Linear layer, const at::Tensor& x) {
    return recompute([layer](const at::Tensor& in) { return layer.ptr()->forward(in); }, {}, x);
  };
  const std::vector<NetCall> calls{
      [&](TwoLayersImpl& net, const at::Tensor& x) { return again(net.last, net.first(x).tanh()); },
      [&](TwoLayersImpl& net, const at::Tensor& x) {
        return net.last(again(net.first, again(net.first, x).narrow(1, 0, 3)).tanh());
      }};
  for (const NetCall& call : calls)
    for (const GradientScale gradients : {GradientScale::sum, GradientScale::mean}) {
      const std::vector<at::Tensor> wanted = sums_alone(2, 1, call);
      run_ranks(2, [&](Group& group) {
        TwoLayers net;
        const auto parallel = data_parallel(net, group, {.bucket_mb = 1e-6, .gradients = gradients});
        for (int step = 0; step < 2; ++step) {  // in the second, gradients are in the memory of the buckets
          net->zero_grad(/*set_to_none=*/step == 0);
          call(*net, rows_for(group.rank(), 0)).square().sum().backward();
          expect_gradients(*net, wanted, gradients == GradientScale::mean ? 0.5 : 1);
        }
      });
    }
}

struct CountingHook final : torch::autograd::PostAccumulateGradHook {
  explicit CountingHook(int& its_count) : count(its_count) {}
  void operator()(const at::Tensor&) override { ++count; }
  int& count;
};

TEST(DataParallelHooks, OthersStay) {
  run_ranks(2, [](Group& group) {
    TwoLayers net;
    int count = 0;
    torch::autograd::impl::set_post_acc_grad_hooks(net->first->weight, std::make_unique<CountingHook>(count));
    const auto train = [&] { net->forward(rows_for(group.rank(), 0)).sum().backward(); };
    {
      const auto parallel = data_parallel(net, group);
      train();
      EXPECT_EQ(count, 1);
      EXPECT_THAT(message_of<ConfigError>([&] { static_cast<void>(data_parallel(net, group)); }),
                  HasSubstr("first.weight belongs to another DataParallel"));
      net->zero_grad();
      train();
      const at::Tensor own = net->first->weight.grad();
      EXPECT_TRUE(group.all_reduce(own, Reduce::avg).wait().equal(own)) << "still reduced";
    }
    train();
    EXPECT_EQ(count, 3);
    const auto next = data_parallel(net, group);
    train();
    EXPECT_EQ(count, 4);
  });
}

/// It would replace ours, and the ranks would drift apart.
TEST(DataParallelHooks, SetLaterIsAnError) {
  run_ranks(2, [](Group& group) {
    TwoLayers net;
    int count = 0;
    const auto parallel = data_parallel(net, group);
    torch::autograd::impl::set_post_acc_grad_hooks(net->first->weight, std::make_unique<CountingHook>(count));
    EXPECT_THAT(message_of<ConfigError>([&] { net->forward(rows_for(group.rank(), 0)).sum().backward(); }),
                HasSubstr("data_parallel: first.weight has got another hook since"));
  });
}

TEST(DataParallelHooks, ParametersThatAreTrainedLater) {
  run_ranks(2, [](Group& group) {
    TwoLayers net;
    net->first->bias.set_requires_grad(false);
    const auto train = [&] { net->forward(rows_for(group.rank(), 0)).sum().backward(); };
    {
      const auto parallel = data_parallel(net, group);
      train();
      net->first->bias.set_requires_grad(true);
      for (int trial = 0; trial < 2; ++trial)
        EXPECT_THAT(message_of<ConfigError>(train),
                    HasSubstr("data_parallel: first.bias is trained, but was not when"));
    }
    const auto parallel = data_parallel(net, group);
    train();
    net->register_module("more", torch::nn::Linear(2, 2));
    EXPECT_THAT(message_of<ConfigError>(train), HasSubstr("more.weight is trained, but was not when"));
  });
}

/// Buckets are on their way when a backward throws.
TEST(DataParallelHooks, ABackwardThatThrows) {
  const auto wanted = sums_alone(2, 1, [](TwoLayersImpl& net, const at::Tensor& x) { return net.forward(x); });
  run_ranks(2, [&](Group& group) {
    TwoLayers net;
    const auto parallel = data_parallel(net, group, {.bucket_mb = 1e-6, .gradients = GradientScale::sum});
    for (int trial = 0; trial < 2; ++trial) {
      const at::Tensor hidden = net->first(rows_for(group.rank(), 0)).tanh();
      hidden.register_hook([](const at::Tensor&) -> void { throw std::runtime_error("in backward"); });
      EXPECT_THROW(net->last(hidden).square().sum().backward(), std::runtime_error);
      EXPECT_GT(parallel.sent_during_backward(), 0);
    }
    net->zero_grad();
    net->forward(rows_for(group.rank(), 0)).square().sum().backward();
    expect_gradients(*net, wanted, 1);
    const at::Tensor hidden = net->first(rows_for(group.rank(), 0)).tanh();
    hidden.register_hook([](const at::Tensor&) -> void { throw std::runtime_error("in backward"); });
    EXPECT_THROW(net->last(hidden).square().sum().backward(), std::runtime_error);
  });
}

struct WaveImpl : torch::nn::Module {
  WaveImpl() {
    phase = register_parameter("phase", at::polar(at::ones({3}, at::kDouble), at::arange(3, at::kDouble)));
    offset = register_buffer("offset", at::polar(at::ones({3}, at::kDouble), at::ones({3}, at::kDouble)));
  }
  at::Tensor forward(const at::Tensor& x) { return at::abs(x * phase + offset); }
  at::Tensor phase, offset;
};
TORCH_MODULE(Wave);

TEST(DataParallelHooks, ComplexParameters) {
  Wave alone;
  for (const int rank : {0, 1}) alone->forward(rows_for(rank, 0)).sum().backward();
  run_ranks(2, [&](Group& group) {
    Wave net;
    if (group.rank() == 1) net->offset.zero_();
    const auto parallel = data_parallel(net, group, {.gradients = GradientScale::sum});
    net->forward(rows_for(group.rank(), 0)).sum().backward();
    EXPECT_TRUE(net->offset.equal(alone->offset));
    EXPECT_TRUE(net->phase.grad().allclose(alone->phase.grad(), 1e-12, 1e-14));
  });
}

/// Its steps follow from all gradients and from the loss: alike on all ranks, if the closure returns that of all.
TEST(DataParallelHooks, LbfgsWithTheLossOfAllRanks) {
  const auto trained = [](Group* group) {
    TwoLayers net;
    std::optional<DataParallel> parallel;
    if (group) parallel.emplace(*net, *group);
    torch::optim::LBFGS optimizer(net->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(4));
    const at::Tensor x = group ? rows_for(group->rank(), 0) : at::cat({rows_for(0, 0), rows_for(1, 0)});
    for (int step = 0; step < 3; ++step)
      optimizer.step([&] {
        optimizer.zero_grad();
        const at::Tensor loss = (net->forward(x) - 0.3).square().mean();
        loss.backward();
        const at::Tensor own = loss.detach().view({1});
        return group ? group->all_reduce(own, Reduce::avg).wait() : own;
      });
    std::vector<at::Tensor> out;
    for (const at::Tensor& parameter : net->parameters()) out.push_back(parameter.detach().clone());
    return out;
  };
  const std::vector<at::Tensor> alone = trained(nullptr);
  run_ranks(2, [&](Group& group) {
    const std::vector<at::Tensor> found = trained(&group);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_TRUE(found[i].allclose(alone[i], 1e-8, 1e-10)) << i;
      EXPECT_TRUE(group.all_gather(found[i].reshape(-1)).wait().view({2, -1}).diff(1, 0).eq(0).all().item<bool>()) << i;
    }
  });
}

}  // namespace
}  // namespace trireme
