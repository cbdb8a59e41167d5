#include "trireme/module/compare_replicas.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/module/data_parallel.hpp"
#include "trireme/module/fit.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

torch::nn::Sequential net_with_statistics() {
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 2));
  const at::NoGradGuard no_grad;
  for (at::Tensor parameter : net->parameters())
    parameter.copy_((at::arange(parameter.numel()) * 0.9).sin().view(parameter.sizes()));
  return net;
}

at::Tensor rows_of_rank(int rank, std::int64_t columns = 3) {
  return (at::arange(4 * columns) + 5.0 * rank).sin().view({4, columns});
}

TEST(CompareReplicas, NamesTheTensorAndTheRank) {
  run_ranks(3, [](Group& group) {
    torch::nn::Sequential net = net_with_statistics();
    const auto parallel = data_parallel(net, group);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      net->forward(rows_of_rank(group.rank())).square().sum().backward();
      optimizer.step();
      compare_replicas({net, group}, {.when = text("step ", step)});
    }
    const at::NoGradGuard no_grad;
    at::Tensor weight = net->named_parameters()["2.weight"], mean = net->named_buffers()["1.running_mean"];
    if (group.rank() == 2) weight[0][0] += 1e-6;
    const auto told = [&](const CompareReplicasOptions& options) {
      return message_of<ComparisonFailed>([&] { compare_replicas({net, group}, options); });
    };
    EXPECT_THAT(told({.when = "step 7"}),
                AllOf(HasSubstr("compare_replicas: step 7: replicas differ in 1 tensor: rank 2 differs from the "
                                "majority\n  2.weight: rank 2, not as ranks 0 and 1"),
                      HasSubstr("\n  fix: ")));
    if (group.rank() == 0) mean += 1;
    EXPECT_THAT(told({}), AllOf(HasSubstr("compare_replicas: replicas differ in 2 tensors"),
                                HasSubstr("\n  1.running_mean (buffer): rank 0, not as ranks 1 and 2")));
    EXPECT_THAT(told({.buffers = false}), Not(HasSubstr("running_mean")));
  });
}

TEST(CompareReplicas, OfAShardedModule) {
  run_ranks(2, [](Group& group) {
    auto model = fully_shard(net_with_statistics(), group, {.sharding = Sharding::no_shard});
    compare_replicas(model);
    const at::NoGradGuard no_grad;
    if (group.rank() == 1) model.kept().back().tensor.narrow(0, model.kept().back().parts.back().offset, 1).add_(1);
    EXPECT_THAT(message_of<ComparisonFailed>([&] { compare_replicas(model); }),
                AllOf(HasSubstr("replicas differ in 1 tensor"), HasSubstr("; none of them is in the majority")));
    auto sharded = fully_shard(net_with_statistics(), group);
    EXPECT_THAT(message_of<ConfigError>([&] { compare_replicas(sharded); }),
                HasSubstr("every rank of world{0,1} keeps another part of the module"));
  });
}

/// A rank that changes its parameters between two steps, and does not tell.
TEST(CompareReplicas, DuringFit) {
  const auto data = tensor_dataset(rows_of_rank(0), at::zeros({4}, at::kLong));
  const FitLoss loss = [](const at::Tensor& out, const at::Tensor& y) { return at::cross_entropy_loss(out, y); };
  const auto train = [&](Mesh& mesh, Sharding sharding, int every, bool changes) {
    std::vector<at::Tensor> own;
    const OptimizerMaker sgd = [&own](std::vector<at::Tensor> parameters) -> std::unique_ptr<torch::optim::Optimizer> {
      own = parameters;
      return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(0.1));
    };
    FitOptions options{.parallel = Parallelism{.devices = std::vector<at::Device>(2, at::Device(at::kCPU)),
                                               .config_fsdp = {.sharding = sharding}},
                       .epochs = 3,
                       .batch_size = 1};
    options.on_step = [&](std::int64_t step, double) {
      const at::NoGradGuard no_grad;
      if (changes && step == 3) own[0].add_(1e-3);
    };
    options.compare_replicas_every = every;
    options.mesh = &mesh;
    torch::nn::Sequential net(torch::nn::Linear(3, 2));
    fit(net, data, data, loss, sgd, options);
  };
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    train(mesh, Sharding::no_shard, 1, false);
    train(mesh, Sharding::no_shard, 0, true);
    EXPECT_THAT(message_of<ConfigError>([&] { train(mesh, Sharding::full_shard, 1, false); }),
                HasSubstr("compare_replicas_every 1 with FSDP (full_shard)"));
    EXPECT_THAT(message_of<ConfigError>([&] { train(mesh, Sharding::no_shard, -1, false); }),
                HasSubstr("compare_replicas_every -1"));
    EXPECT_THAT(message_of<ComparisonFailed>([&] { train(mesh, Sharding::no_shard, 2, true); }),
                HasSubstr("compare_replicas: step 4: replicas differ in"));
  });
}

}  // namespace
}  // namespace trireme
