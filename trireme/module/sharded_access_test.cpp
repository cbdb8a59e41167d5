// A sharded module that is used in other ways than by calls of the sharded model.
#include <functional>
#include <sstream>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include "trireme/base/error.hpp"
#include "trireme/base/ranks_of_job.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/module/data_parallel.hpp"
#include "trireme/module/fully_shard.hpp"
#include "trireme/module/module_parts.hpp"
#include "trireme/module/pipeline.hpp"
#include "trireme/module/sync_batch_norm.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;

torch::nn::Sequential two_linears() {
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::Linear(4, 2));
  const at::NoGradGuard no_grad;
  for (at::Tensor parameter : net->parameters())
    parameter.copy_((at::arange(parameter.numel()) * 0.9).sin().view(parameter.sizes()));
  return net;
}

template <class F>
std::string torch_message_of(F f) {
  try {
    f();
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  }
  return "no error";
}

TEST(ShardedAccess, ValuesThatAreNotThere) {
  run_ranks(2, [](Group& group) {
    torch::nn::Sequential net = two_linears();
    auto model = fully_shard(net, group);
    const auto told = AllOf(HasSubstr("fully_shard: the parameters of unit '0' (0.weight, 0.bias) have no values"),
                            HasSubstr("with_whole_parameters(), state() or release()"));
    EXPECT_THAT(torch_message_of([&] { net->parameters()[0].sum(); }), told);
    EXPECT_THAT(torch_message_of([&] { net->parameters()[0].data_ptr(); }), told);
    EXPECT_THAT(torch_message_of([&] { net->children()[0]->as<torch::nn::Linear>()->forward(at::ones({1, 3})); }),
                told);
    EXPECT_THAT(torch_message_of([&] {
                  std::ostringstream out;
                  torch::save(net, out);
                }),
                told);
    model(at::ones({1, 3})).sum().backward();
    EXPECT_THAT(torch_message_of([&] { net->parameters()[0].sum(); }), told);
  });
}

/// They would train nothing.
TEST(ShardedAccess, OptimizersOfTheModulesOwnParameters) {
  for (const Sharding sharding : {Sharding::no_shard, Sharding::full_shard})
    run_ranks(2, [&](Group& group) {
      torch::nn::Sequential net = two_linears();
      auto model = fully_shard(net, group, {.sharding = sharding});
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      for (int step = 0; step < 2; ++step) {
        model(at::ones({1, 3})).sum().backward();
        EXPECT_THAT(torch_message_of([&] { optimizer.step(); }),
                    AllOf(HasSubstr("of unit '0' (0.weight, 0.bias)"), HasSubstr("make the optimizer from shards()")));
        EXPECT_THAT(torch_message_of([&] { torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0); }),
                    AllOf(HasSubstr("the gradients of unit '0' (0.weight, 0.bias) are in the shards"),
                          HasSubstr("clip_grad_norm() of the sharded model")));
      }
      model.zero_grad();
      optimizer.step();  // nothing to do
    });
}

TEST(ShardedAccess, ParametersThatChangeLater) {
  run_ranks(2, [](Group& group) {
    torch::nn::Sequential net = two_linears();
    net->parameters()[1].set_requires_grad(false);
    auto model = fully_shard(net, group);
    const at::Tensor x = at::ones({1, 3});
    model(x).sum().backward();
    net->parameters()[1].set_requires_grad(true);
    EXPECT_THAT(message_of<ConfigError>([&] { model(x); }), HasSubstr("fully_shard: 0.bias is trained, but was not"));
    net->parameters()[1].set_requires_grad(false);
    net->parameters()[2].set_data(at::ones({2, 4}));
    EXPECT_THAT(message_of<ConfigError>([&] { model(x); }), HasSubstr("1.weight has got other memory"));
  });
}

TEST(ShardedAccess, Release) {
  const torch::nn::Sequential wanted = two_linears();
  for (const Sharding sharding : {Sharding::no_shard, Sharding::shard_grad_op, Sharding::full_shard})
    for (const bool converts : {false, true})
      run_ranks(2, [&](Group& group) {
        torch::nn::Sequential net = two_linears();
        FullyShardOptions options{.sharding = sharding};
        if (converts) options.precision.param = at::kBFloat16;
        auto model = fully_shard(net, group, options);
        model(at::ones({1, 3})).sum().backward();
        EXPECT_EQ(model.release().get(), net.ptr().get());
        for (std::size_t i = 0; i < 4; ++i) {
          EXPECT_TRUE(net->parameters()[i].equal(wanted->parameters()[i])) << i;
          EXPECT_FALSE(net->parameters()[i].grad().defined());
        }
        net->forward(at::ones({1, 3})).sum().backward();
        EXPECT_TRUE(net->parameters()[0].grad().defined());
        EXPECT_THAT(message_of<ConfigError>([&] { model(at::ones({1, 3})); }), HasSubstr("the model was released"));
        auto again = fully_shard(net, group, options);  // and once more
        EXPECT_THAT(message_of<ConfigError>([&] { static_cast<void>(fully_shard(net, group)); }),
                    sharding == Sharding::no_shard && !converts ? HasSubstr("no error")
                                                                : HasSubstr("belongs to another sharded model"));
      });
}

TEST(ShardedAccess, AModelThatIsGone) {
  run_ranks(2, [](Group& group) {
    torch::nn::Sequential net = two_linears();
    {
      auto model = fully_shard(net, group);
    }
    EXPECT_THAT(
        torch_message_of([&] { net->forward(at::ones({1, 3})); }),
        AllOf(HasSubstr("0.weight, 0.bias have no values: their sharded model is gone"), HasSubstr("release()")));
    EXPECT_THAT(message_of<ConfigError>([&] { static_cast<void>(data_parallel(net, group)); }),
                HasSubstr("data_parallel: 0.weight has no values"));
  });
}

TEST(ShardedAccess, AContextThatIsGone) {
  run_ranks(1, [](Group& group) {
    parallel_context_begins(1);
    auto model = fully_shard(two_linears(), group);
    const at::Tensor loss = model(at::ones({1, 3})).sum();
    parallel_context_ends();
    const std::vector<std::function<void()>> uses{[&] { loss.backward(); },
                                                  [&] { model(at::ones({1, 3})); },
                                                  [&] { model.state(); },
                                                  [&] { model.clip_grad_norm(1); },
                                                  [&] { model.release(); },
                                                  [&] { model.with_whole_parameters([] {}); },
                                                  [&] { CheckpointedModule{model}; }};
    for (const bool has_another : {false, true}) {
      if (has_another) parallel_context_begins(1);
      for (std::size_t i = 0; i < uses.size(); ++i)
        EXPECT_THAT(message_of<ConfigError>(uses[i]), HasSubstr("fully_shard: the ParallelContext has ended")) << i;
      if (has_another) parallel_context_ends();
    }
  });
  run_ranks(1, [](World& world) {
    parallel_context_begins(1);
    Mesh mesh(Grid::dense({}), world);
    torch::nn::Sequential net(torch::nn::Linear(3, 4), SyncBatchNorm(4));
    Pipeline pipe(mesh, at::kCPU, net.ptr());
    const at::Tensor x = at::ones({2, 3}), y = at::ones({2, 4});
    parallel_context_ends();
    const std::vector<std::function<void()>> uses{
        [&] { pipe.step({x}, y, [](const at::Tensor& out, const at::Tensor&) { return out.sum(); }); },
        [&] { pipe.forward({x}); },
        [&] { pipe.clip_grad_norm(1); },
        [&] { pipe.state(); },
        [&] { pipe.release(); },
        [&] { CheckpointedModule{pipe}; }};
    for (std::size_t i = 0; i < uses.size(); ++i)
      EXPECT_THAT(message_of<ConfigError>(uses[i]), HasSubstr("pipeline: the ParallelContext has ended")) << i;
    EXPECT_THAT(message_of<ConfigError>([&] { net->forward(x); }), HasSubstr("SyncBatchNorm: the ParallelContext has"));
  });
}

/// A unit that is called without the model might have the values of an earlier step.
TEST(ShardedAccess, UnitsOutsideOfACallOfTheModel) {
  for (const Sharding sharding : {Sharding::shard_grad_op, Sharding::full_shard})
    run_ranks(2, [&](Group& group) {
      torch::nn::Sequential net = two_linears();
      auto model = fully_shard(net, group, {.sharding = sharding, .policy = wrap_by_name({"*"})});
      const at::Tensor x = at::ones({1, 3});
      for (int trial = 0; trial < 2; ++trial) {
        EXPECT_THAT(message_of<ConfigError>([&] { net->forward(x); }),
                    HasSubstr("unit '0' was called outside of a call of the sharded model"));
        model(x).sum().backward();
        const at::NoGradGuard no_grad;
        model(x);
      }
      EXPECT_THAT(message_of<ConfigError>([&] { net->clone(); }), HasSubstr("unit 0 cannot be cloned"));
    });
}

TEST(ShardedAccess, SparseGradientsAreRefused) {
  run_ranks(1, [](Group& group) {
    torch::nn::Sequential net(torch::nn::Embedding(torch::nn::EmbeddingOptions(3, 2).sparse(true)));
    EXPECT_THAT(message_of<ConfigError>([&] { static_cast<void>(fully_shard(net, group)); }),
                HasSubstr("0.weight has sparse gradients"));
  });
}

struct ListedImpl : torch::nn::Module {
  explicit ListedImpl(bool as_units) : units(as_units) {
    for (int i = 0; i < 2; ++i)
      if (units)
        layers->push_back(Unit<torch::nn::Linear>(3, 3));
      else
        layers->push_back(torch::nn::Linear(3, 3));
    register_module("layers", layers);
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& layer : *layers)
      x = units ? layer->as<Unit<torch::nn::Linear>>()->forward(x) : layer->as<torch::nn::Linear>()->forward(x);
    return x;
  }
  const bool units;
  torch::nn::ModuleList layers;
};
TORCH_MODULE(Listed);

TEST(ShardedAccess, UnitsOfAModuleList) {
  run_ranks(2, [](Group& group) {
    auto model = fully_shard(Listed(true), group, {.policy = wrap_by_name({"layers.*"})});
    EXPECT_EQ(model.units_text(), "(the rest): 0 elements\nlayers.0: 12 elements\nlayers.1: 12 elements\n");
    model(at::ones({1, 3})).sum().backward();
    EXPECT_TRUE(model.shards()[1].grad().defined());
    for (const WrapPolicy& policy : {wrap_by_name({"layers.*"}), wrap_by_type<torch::nn::LinearImpl>()})
      EXPECT_THAT(
          message_of<ConfigError>([&] { static_cast<void>(fully_shard(Listed(false), group, {.policy = policy})); }),
          AllOf(HasSubstr("names no module that can be a unit; calls of layers.0 cannot be seen"),
                HasSubstr("Unit<Block>")));
  });
}

/// A module on the CPU of which no rank ever has a second copy.
struct PeakMemory : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
    now += bytes;
    most = std::max(most, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t now = 0, most = 0;
};

TEST(ShardedAccess, IsShardedUnitByUnit) {
  constexpr std::int64_t kUnits = 16, kWidth = 64, kUnitBytes = kWidth * kWidth * 4;
  run_ranks(2, [](Group& group) {
    torch::nn::Sequential net;
    for (int i = 0; i < kUnits; ++i)
      net->push_back(torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)));
    const at::Tensor first = net->parameters()[0].detach().clone();
    const auto peak = std::make_shared<PeakMemory>();
    const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, peak);
    auto model = fully_shard(net, group);
    // The shards, and a unit; what is freed meanwhile is not counted, because it was there before.
    EXPECT_LT(peak->most, kUnits * kUnitBytes / 2 + 3 * kUnitBytes);
    if (group.rank() == 0) {
      model.for_each_whole([&](const std::string& name, const at::Tensor& value) {
        EXPECT_TRUE(name != "0.weight" || value.equal(first));
      });
    } else {
      model.for_each_whole([](const std::string&, const at::Tensor&) {});
    }
  });
}

TEST(ShardedAccess, ParametersOnMeta) {
  struct LaterImpl : torch::nn::Module {
    LaterImpl() {
      weight = register_parameter("weight", at::empty({3, 3}, at::kMeta));
      offset = register_buffer("offset", at::empty({3}, at::kMeta));
    }
    at::Tensor forward(const at::Tensor& x) { return x.matmul(weight) + offset; }
    at::Tensor weight, offset;
  };
  run_ranks(2, [](Group& group) {
    EXPECT_THAT(message_of<ConfigError>([&] { static_cast<void>(fully_shard(std::make_shared<LaterImpl>(), group)); }),
                HasSubstr("weight is on `meta`, and has no values"));
    std::vector<std::string> filled;
    auto model = fully_shard(std::make_shared<LaterImpl>(), group,
                             {.device = at::kCPU, .fill = [&](const std::string& name, at::Tensor value) {
                                filled.push_back(name);
                                value.fill_(name == "weight" ? 2 : 1);
                              }});
    EXPECT_EQ(filled.size(), group.rank() == 0 ? 2U : 0U);
    const at::Tensor y = model(at::ones({1, 3}));
    EXPECT_TRUE(y.equal(at::full({1, 3}, 7.0F)));
    y.sum().backward();
    EXPECT_TRUE(model.shards()[0].grad().defined());
  });
}

TEST(ShardedAccess, ComplexParametersAreSharded) {
  struct TurnImpl : torch::nn::Module {
    TurnImpl() { phase = register_parameter("phase", at::polar(at::ones({3}), at::arange(3, at::kFloat))); }
    at::Tensor forward(const at::Tensor& x) { return at::abs(x * phase + 1); }
    at::Tensor phase;
  };
  TurnImpl alone;
  alone.forward(at::ones({1, 3})).sum().backward();
  run_ranks(2, [&](Group& group) {
    auto model = fully_shard(std::make_shared<TurnImpl>(), group);
    model(at::ones({1, 3})).sum().backward();
    EXPECT_TRUE(model.shards()[0].grad().is_complex());
    EXPECT_NEAR(model.clip_grad_norm(100), alone.phase.grad().abs().norm().item<double>(), 1e-6);
  });
}

}  // namespace
}  // namespace trireme
