#include "trireme/module/pipeline.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adam.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/module/sync_batch_norm.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

// Four modules as a user writes them; two tensors travel between the second and the fourth.
struct EmbedImpl : torch::nn::Module {
  EmbedImpl() : in(register_module("in", torch::nn::Linear(3, 6))) { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) { return in(x).tanh(); }
  torch::nn::Linear in;
};
struct SplitImpl : torch::nn::Module {
  SplitImpl() : mid(register_module("mid", torch::nn::Linear(6, 6))) { to(at::kDouble); }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) { return {x, mid(x)}; }
  torch::nn::Linear mid;
};
struct MixImpl : torch::nn::Module {
  MixImpl() : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})))) {
    unused = register_parameter("unused", at::ones({2}));
    count = register_buffer("count", at::zeros({1}));
    to(at::kDouble);
  }
  std::vector<at::Tensor> forward(const at::Tensor& x, const at::Tensor& y) { return {x * y, norm(y)}; }
  torch::nn::LayerNorm norm;
  at::Tensor unused, count;
};
struct HeadImpl : torch::nn::Module {
  HeadImpl() : out(register_module("out", torch::nn::Linear(6, 2))) { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return out(x + y); }
  torch::nn::Linear out;
};
TORCH_MODULE(Embed);
TORCH_MODULE(Split);
TORCH_MODULE(Mix);
TORCH_MODULE(Head);

const std::vector<StageBuilder> kFour{[] { return Embed(); }, [] { return Split(); }, [] { return Mix(); },
                                      [] { return Head(); }};

constexpr std::int64_t kSamples = 10;
at::Tensor samples_of(int step) {
  return ((at::arange(kSamples * 3, at::kDouble) + 5.0 * step) * 0.41).sin().view({kSamples, 3});
}
at::Tensor targets_of(int step) { return samples_of(step).narrow(1, 0, 2).square(); }
at::Tensor mean_square(const at::Tensor& out, const at::Tensor& target) { return (out - target).square().mean(); }

struct Learned {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> state;
  at::Tensor outputs;
};

Learned learn(int dp, int pp, const PipelineOptions& options) {
  Learned out;
  at::manual_seed(3);
  run_ranks(dp * pp, [&](World& world) {
    Mesh mesh(Grid::dense({.pp = pp, .dp = dp}), world);
    Pipeline pipe(mesh, at::kCPU, kFour, options);
    torch::optim::Adam optimizer(pipe.parameters(), torch::optim::AdamOptions(0.01));
    const std::int64_t each = kSamples / dp, first = mesh.coord(Axis::dp) * each;
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss =
          pipe.step({samples_of(step).narrow(0, first, each)}, targets_of(step).narrow(0, first, each), mean_square);
      optimizer.step();
      if (world.rank() == world.size() - 1) out.losses.push_back(loss.item<double>());
    }
    const at::Tensor outputs = pipe.forward({samples_of(9)});
    if (world.rank() == 0) out.outputs = outputs;
    for (const NamedTensor& item : pipe.state())
      if (world.rank() == 0) out.state[item.name] = item.value;
  });
  return out;
}

/// The same modules in one process, in the usual way, from the same weights.
Learned learn_plainly() {
  Embed embed;
  Split split;
  Mix mix;
  Head head;
  std::vector<std::shared_ptr<torch::nn::Module>> stages{embed.ptr(), split.ptr(), mix.ptr(), head.ptr()};
  std::map<std::string, at::Tensor> begin;
  at::manual_seed(3);
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({}), world);
    for (const NamedTensor& item : Pipeline(mesh, at::kCPU, kFour).state()) begin[item.name] = item.value;
  });
  std::vector<at::Tensor> parameters;
  for (std::size_t i = 0; i < stages.size(); ++i)
    for (const auto& parameter : stages[i]->named_parameters()) {
      const at::NoGradGuard no_grad;
      at::Tensor value = parameter.value();
      value.copy_(begin.at(text(i, ".", parameter.key())));
      parameters.push_back(value);
    }
  const auto forward = [&](const at::Tensor& x) {
    auto [a, b] = split(embed(x));
    const auto mixed = mix(a, b);
    return head(mixed[0], mixed[1]);
  };
  torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(0.01));
  Learned out;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = mean_square(forward(samples_of(step)), targets_of(step));
    loss.backward();
    optimizer.step();
    out.losses.push_back(loss.item<double>());
  }
  const at::NoGradGuard no_grad;
  out.outputs = forward(samples_of(9));
  for (std::size_t i = 0; i < stages.size(); ++i)
    for (const auto& parameter : stages[i]->named_parameters())
      out.state[text(i, ".", parameter.key())] = parameter.value().detach();
  return out;
}

TEST(Pipeline, EqualsOneProcess) {
  const Learned wanted = learn_plainly();
  for (const auto& [dp, pp] : std::vector<std::pair<int, int>>{{1, 1}, {1, 2}, {1, 4}, {2, 2}})
    for (const char* schedule : {"1f1b", "afab", "interleaved-1f1b"})
      for (const int microbatches : {1, 3, 4, 5, 64}) {
        const bool interleaved = std::string(schedule) == "interleaved-1f1b";
        if (interleaved && pp != 2) continue;
        SCOPED_TRACE(text("dp ", dp, " pp ", pp, " ", schedule, " microbatches ", microbatches));
        const Learned found =
            learn(dp, pp, {.schedule = schedule, .microbatches = microbatches, .virtual_stages = interleaved ? 2 : 1});
        ASSERT_EQ(found.losses.size(), wanted.losses.size());
        for (std::size_t i = 0; i < wanted.losses.size(); ++i)
          EXPECT_NEAR(found.losses[i] / wanted.losses[i], 1, 1e-12);
        for (const auto& [name, value] : wanted.state)
          EXPECT_LE((found.state.at(name) - value).norm().item<double>(), 1e-9 * value.norm().item<double>()) << name;
        EXPECT_EQ(found.state.size(), wanted.state.size() + 1) << "with the buffer";
        EXPECT_TRUE(found.outputs.allclose(wanted.outputs, 1e-9, 1e-12));
      }
}

TEST(Pipeline, ChildrenOfASequential) {
  at::manual_seed(1);
  const auto net = [] {
    at::manual_seed(1);
    torch::nn::Sequential it(torch::nn::Linear(3, 4), torch::nn::GELU(), torch::nn::Linear(4, 2));
    it->to(at::kDouble);
    return it;
  };
  torch::nn::Sequential alone = net();
  mean_square(alone->forward(samples_of(0)), targets_of(0)).backward();
  std::vector<torch::nn::Sequential> copies{net(), net()};
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.pp = 2}), world);
    Pipeline pipe(mesh, at::kCPU, copies[static_cast<std::size_t>(world.rank())].ptr());
    EXPECT_EQ(pipe.stages(), world.rank() == 0 ? (std::vector<int>{0, 1}) : (std::vector<int>{2}));
    pipe.step({samples_of(0)}, targets_of(0), mean_square);
    for (const auto& parameter : pipe.module().named_parameters())
      EXPECT_TRUE(parameter.value().grad().allclose(alone->named_parameters()[parameter.key()].grad(), 1e-12, 1e-15));
  });
}

TEST(Pipeline, ClipsTheNormOfAllStages) {
  double wanted = 0;
  for (const int pp : {1, 2, 4})
    run_ranks(pp, [&](World& world) {
      at::manual_seed(3);
      Mesh mesh(Grid::dense({.pp = pp}), world);
      Pipeline pipe(mesh, at::kCPU, kFour);
      pipe.step({samples_of(0)}, targets_of(0), mean_square);
      const double norm = pipe.clip_grad_norm(0.01);
      if (pp == 1) wanted = norm;
      EXPECT_NEAR(norm / wanted, 1, 1e-12);
      EXPECT_GT(norm, 0.02);
      EXPECT_NEAR(pipe.clip_grad_norm(1) / 0.01, 1, 1e-12);
    });
}

/// Samples of other sizes from step to step.
TEST(Pipeline, OtherShapes) {
  run_ranks(2, [](World& world) {
    Mesh mesh(Grid::dense({.pp = 2}), world);
    Pipeline pipe(mesh, at::kCPU, {[] { return torch::nn::Linear(3, 4); }, [] { return torch::nn::Linear(4, 2); }});
    for (const std::int64_t length : {7, 5, 7}) {
      const at::Tensor loss = pipe.step({at::ones({8, length, 3})}, at::zeros({8, length, 2}), mean_square);
      EXPECT_GT(loss.item<double>(), 0);
      EXPECT_EQ(pipe.forward({at::ones({3, length, 3})}).size(1), length);
    }
  });
}

/// Parts that are not sharded are combined by position.
TEST(Pipeline, ModulesThatDiffer) {
  struct TwoNamesImpl : torch::nn::Module {
    explicit TwoNamesImpl(bool swapped) {
      for (const char* name : {swapped ? "b" : "a", swapped ? "a" : "b"}) register_parameter(name, at::ones({3}));
    }
    at::Tensor forward(const at::Tensor& x) { return x * parameters()[0]; }
  };
  run_ranks(2, [](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    const auto made = [&](const torch::nn::AnyModule& stage) {
      return message_of<ConfigError>([&] { Pipeline(mesh, at::kCPU, {[&] { return Stage(stage); }}); });
    };
    EXPECT_THAT(made(torch::nn::AnyModule(TwoNamesImpl(world.rank() == 1))),
                HasSubstr("pipeline: rank 1 of world{0,1} has a different module than rank 0: 0.b [3]"));
    EXPECT_THAT(made(torch::nn::AnyModule(torch::nn::Linear(3, 2 + world.rank()))), HasSubstr("a different module"));
    EXPECT_THAT(made(torch::nn::AnyModule(torch::nn::Embedding(torch::nn::EmbeddingOptions(3, 2).sparse(true)))),
                HasSubstr("pipeline: 0.weight has sparse gradients"));
  });
}

TEST(Pipeline, ParametersThatChangeLater) {
  run_ranks(2, [](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    torch::nn::Linear linear(3, 2);
    linear->to(at::kDouble);
    linear->bias.set_requires_grad(false);
    Pipeline pipe(mesh, at::kCPU, {[&] { return linear; }});
    pipe.step({samples_of(0)}, targets_of(0), mean_square);
    linear->bias.set_requires_grad(true);  // its gradients are averaged from now on
    pipe.step({samples_of(0)}, targets_of(0), mean_square);
    EXPECT_TRUE(linear->bias.grad().defined());
    linear->register_parameter("more", at::ones({2}, at::kDouble));
    EXPECT_THAT(message_of<ConfigError>([&] { pipe.step({samples_of(0)}, targets_of(0), mean_square); }),
                HasSubstr("pipeline: 0.more was added after the pipeline was made"));
  });
}

TEST(Pipeline, Release) {
  run_ranks(4, [](World& world) {
    at::manual_seed(3);
    Mesh mesh(Grid::dense({.pp = 2, .dp = 2}), world);
    Pipeline pipe(mesh, at::kCPU, kFour, {.shard = FullyShardOptions{}});
    const std::vector<NamedTensor> state = pipe.state();
    pipe.release();
    for (const auto& parameter : pipe.module().named_parameters()) {
      const auto its = std::ranges::find(state, parameter.key(), &NamedTensor::name);
      ASSERT_NE(its, state.end()) << parameter.key();
      EXPECT_TRUE(parameter.value().equal(its->value)) << parameter.key();
    }
    EXPECT_THAT(message_of<ConfigError>([&] { pipe.step({samples_of(0)}, targets_of(0), mean_square); }),
                HasSubstr("pipeline: it was released"));
  });
}

/// Over the samples that all ranks have of a microbatch.
TEST(Pipeline, SyncBatchNormOfTheRanksOfDp) {
  const at::Tensor x = samples_of(0);
  const auto trained = [&](int dp) {
    std::vector<at::Tensor> out;
    std::vector<torch::nn::Sequential> nets;  // ranks that are threads share a generator
    for (int rank = 0; rank < dp; ++rank) {
      at::manual_seed(5);
      nets.emplace_back(torch::nn::Linear(3, 2), SyncBatchNorm(2));
      nets.back()->to(at::kDouble);
    }
    run_ranks(dp, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = dp}), world);
      torch::nn::Sequential net = nets[static_cast<std::size_t>(world.rank())];
      const std::int64_t own = kSamples / dp;
      {
        Pipeline pipe(mesh, at::kCPU, net.ptr(), {.microbatches = 1});
        pipe.step({x.narrow(0, own * world.rank(), own)}, targets_of(0).narrow(0, own * world.rank(), own),
                  mean_square);
      }
      net->forward(x);  // the group is gone
      if (world.rank() == 0) out = {net->parameters()[0].grad(), net->named_buffers()["1.running_var"].clone()};
    });
    return out;
  };
  const std::vector<at::Tensor> one = trained(1), two = trained(2);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].allclose(two[i], 1e-10, 1e-12)) << i;
}

TEST(Pipeline, Refused) {
  run_ranks(2, [](World& world) {
    Mesh mesh(Grid::dense({.pp = 2}), world);
    const auto refusal = [&](std::vector<StageBuilder> stages, const PipelineOptions& options) {
      return message_of<ConfigError>([&] { Pipeline(mesh, at::kCPU, std::move(stages), options); });
    };
    EXPECT_THAT(refusal({kFour[0]}, {}), HasSubstr("1 stages for 2 ranks: every part needs at least one"));
    EXPECT_THAT(refusal(kFour, {.schedule = "interleaved-1f1b", .virtual_stages = 3}),
                HasSubstr("4 stages for 2 ranks with 3 parts each"));
    EXPECT_THAT(refusal(kFour, {.schedule = "zbv"}), HasSubstr("fix: afab, 1f1b or interleaved-1f1b"));
    EXPECT_THAT(refusal(kFour, {.microbatches = 0}), HasSubstr("0 microbatches: must be >= 1"));
  });
  run_ranks(1, [](World& world) {
    Mesh mesh(Grid::dense({}), world);
    torch::nn::Linear shared(3, 3);
    torch::nn::Sequential tied(shared, torch::nn::ReLU(), shared);
    EXPECT_THAT(message_of<ConfigError>([&] { Pipeline(mesh, at::kCPU, tied.ptr()); }),
                HasSubstr("stages 0 and 2 share a parameter"));
  });
  EXPECT_THAT(message_of<ConfigError>([] { Stage{Head()}({at::ones({1})}); }), HasSubstr("a stage gets 1 tensors"));
}

}  // namespace
}  // namespace trireme
