// What users do with modules over several axes besides training them: values of their own, gradients of several steps,
// steps that fail, comparisons of replicas.
#include <map>
#include <stdexcept>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/layout/grid.hpp"
#include "trireme/module/compare_replicas.hpp"
#include "trireme/module/module_safetensors.hpp"
#include "trireme/module/pipeline.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/tensor/linear.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kFeatures = 4;

/// A tensor-parallel layer between modules of torch that were made with other values on each rank, and a tie.
struct MixedImpl : torch::nn::Module {
  explicit MixedImpl(const Parallel& parallel)
      : in(register_module("in", torch::nn::Linear(kFeatures, kFeatures))),
        cut(register_module("cut", std::make_shared<ColumnLinear>(kFeatures, kFeatures, parallel,
                                                                  ColumnOptions{.gather_output = true}))) {
    again = register_parameter("again", in->weight);
    shift = register_buffer("shift", at::zeros({kFeatures}));
  }
  at::Tensor forward(const at::Tensor& x) { return at::linear(cut->forward(in(x).tanh()), again) + shift; }
  torch::nn::Linear in;
  std::shared_ptr<ColumnLinear> cut;
  at::Tensor again, shift;
};

/// Ranks are threads, and would draw from one generator.
std::shared_ptr<MixedImpl> make_mixed(Mesh& mesh, int stage = 0) {
  const InitScope scope(at::kCPU, at::kDouble);
  auto net = std::make_shared<MixedImpl>(Parallel(mesh));
  net->to(at::kDouble);
  const at::NoGradGuard no_grad;
  for (at::Tensor parameter : net->parameters())
    parameter.copy_((at::arange(parameter.numel()) * 0.7 + mesh.rank() + 3.0 * stage).sin().view(parameter.sizes()));
  net->shift.fill_(0.1 * mesh.rank());
  return net;
}

at::Tensor rows(int rank) { return (at::arange(4 * kFeatures, at::kDouble) * 0.3 + rank).cos().view({4, kFeatures}); }
at::Tensor mean_square(const at::Tensor& out, const at::Tensor& y) { return (out - y).square().mean(); }

std::vector<StageBuilder> three_stages(Mesh& mesh) {
  std::vector<StageBuilder> out;
  for (int stage = 0; stage < 3; ++stage) out.emplace_back([&mesh, stage] { return Stage(make_mixed(mesh, stage)); });
  return out;
}

std::map<std::string, at::Tensor> values_of(const CheckpointedModule& what) {
  std::map<std::string, at::Tensor> out;
  for_each_whole(what, [&out](const std::string& name, const at::Tensor& value) { out[name] = value.clone(); });
  return out;
}

/// Without an error: every rank of a tensor-parallel group has the same values of what is not cut.
void expect_alike_over_tp(const CheckpointedModule& what, Mesh& mesh) {
  for (const auto& [name, value] : values_of(what)) {
    const at::Tensor all =
        mesh.group(Axis::tp).all_gather(value.flatten()).wait().view({mesh.group(Axis::tp).size(), -1});
    EXPECT_TRUE(all.eq(all[0]).all().item<bool>()) << name;
  }
}

TEST(ComposedUse, ModulesOfTorchStartAlikeOnAllRanks) {
  run_ranks(4, [](World& world) {
    Mesh mesh(Grid::dense({.dp = 2, .tp = 2}), world);
    auto sharded = fully_shard(make_mixed(mesh), mesh);
    expect_alike_over_tp(sharded, mesh);
    Pipeline copies(mesh, at::kCPU, three_stages(mesh));
    expect_alike_over_tp(copies, mesh);
    Pipeline pipe(mesh, at::kCPU, three_stages(mesh), {.shard = FullyShardOptions{}});
    expect_alike_over_tp(pipe, mesh);
    EXPECT_EQ(values_of(pipe).at("1.shift")[0].item<double>(), 0) << "that of rank 0";
  });
}

/// Gradients of two steps are the sum of both: averages and partial sums are made of the new ones alone.
TEST(ComposedUse, StepsAddUpUntilZeroGrad) {
  for (const bool shards : {false, true})
    run_ranks(4, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2, .tp = 2}), world);
      PipelineOptions options{.microbatches = 2};
      if (shards) options.shard = FullyShardOptions{};
      Pipeline pipe(mesh, at::kCPU, three_stages(mesh), options);
      const at::Tensor x = rows(mesh.coord(Axis::dp));
      std::vector<at::Tensor> once;
      pipe.step({x}, x, mean_square);
      for (const at::Tensor& parameter : pipe.parameters()) once.push_back(parameter.grad().clone());
      pipe.step({x}, x, mean_square);
      for (std::size_t i = 0; i < once.size(); ++i)
        EXPECT_TRUE(pipe.parameters()[i].grad().allclose(once[i] * 2, 1e-13, 1e-15)) << shards << " " << i;
    });
}

/// On all ranks, in the second microbatch.
TEST(ComposedUse, AStepThatThrowsAddsNothing) {
  for (const bool shards : {false, true})
    run_ranks(2, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2}), world);
      PipelineOptions options{.schedule = "afab", .microbatches = 2};
      if (shards) options.shard = FullyShardOptions{};
      Pipeline pipe(mesh, at::kCPU, three_stages(mesh), options);
      const at::Tensor x = rows(mesh.coord(Axis::dp));
      pipe.step({x}, x, mean_square);
      std::vector<at::Tensor> once;
      for (const at::Tensor& parameter : pipe.parameters()) once.push_back(parameter.grad().clone());
      int calls = 0;
      const auto fails = [&calls](const at::Tensor& out, const at::Tensor& y) {
        // Backward throws, of the second microbatch: the gradients of the first are there.
        at::Tensor loss = mean_square(out, y);
        if (++calls == 2)
          loss.register_hook([](const at::Tensor& dy) -> at::Tensor {
            if (dy.defined()) throw std::runtime_error("of a user");
            return dy;
          });
        return loss;
      };
      EXPECT_ANY_THROW(pipe.step({x}, x, fails));
      for (std::size_t i = 0; i < once.size(); ++i)
        EXPECT_TRUE(pipe.parameters()[i].grad().equal(once[i])) << shards << " " << i;
      pipe.step({x}, x, mean_square);
      for (std::size_t i = 0; i < once.size(); ++i)
        EXPECT_TRUE(pipe.parameters()[i].grad().allclose(once[i] * 2, 1e-13, 1e-15)) << shards << " " << i;
    });
}

TEST(ComposedUse, AModuleThatIsRefusedIsAsBefore) {
  run_ranks(2, [](World& world) {
    Mesh mesh(Grid::dense({.tp = 2}), world);
    torch::nn::Sequential net(torch::nn::Linear(kFeatures, kFeatures), torch::nn::Linear(kFeatures, kFeatures));
    net->to(at::kDouble);
    net->push_back(torch::nn::AnyModule(make_mixed(mesh)));
    const at::Tensor before = net->forward(rows(0));
    EXPECT_THAT(message_of<ConfigError>([&] { static_cast<void>(fully_shard(net, mesh.group(Axis::dp))); }),
                HasSubstr("2.cut.weight is cut over 2 ranks"));
    const at::Tensor after = net->forward(rows(0));
    EXPECT_TRUE(after.equal(before));
    after.sum().backward();
    for (const at::Tensor& parameter : net->parameters()) EXPECT_TRUE(parameter.grad().defined());
    const auto sharded = fully_shard(net, mesh);  // it can still be sharded
  });
}

/// The full parameter, also of a layer that is cut: the same values on every layout.
TEST(ComposedUse, FillGetsFullParameters) {
  const auto fill = [](const std::string& name, at::Tensor value) {
    value.copy_((at::arange(value.numel()) + static_cast<double>(name.size())).view(value.sizes()));
  };
  std::map<std::string, at::Tensor> wanted, next;
  for (const int tp : {1, 2}) {
    run_ranks(2 * tp, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2, .tp = tp}), world);
      const InitScope scope(at::kMeta, at::kDouble);
      const auto net = std::make_shared<ColumnLinear>(kFeatures, 6, Parallel(mesh), ColumnOptions{.bias = true});
      const auto sharded = fully_shard(net, mesh, {.fill = fill});
      EXPECT_EQ(sharded.shards()[0].device(), at::Device(at::kCPU));
      const auto found = values_of(const_cast<FullyShard<ColumnLinear>&>(sharded));
      if (world.rank() == 0) next = found;
      for (const auto& [name, value] : wanted) EXPECT_TRUE(found.at(name).equal(value)) << name;
    });
    wanted = next;
  }
  EXPECT_EQ(wanted.at("weight")[1][1].item<double>(), 5 + 6);
}

/// Of what several ranks hold, whatever cuts and shards the rest.
TEST(ComposedUse, ReplicasAreComparedOverTheRanksThatHoldTheSame) {
  run_ranks(4, [](World& world) {
    Mesh mesh(Grid::dense({.dp = 2, .tp = 2}), world);
    const auto expect_found = [&](const CheckpointedModule& what, const at::Tensor& tensor, const std::string& name) {
      compare_replicas(what);
      const at::NoGradGuard no_grad;
      if (world.rank() == 3) tensor.flatten()[0].add_(1e-6);
      EXPECT_THAT(message_of<ComparisonFailed>([&] { compare_replicas(what); }), HasSubstr(name));
    };
    const auto make_alike = [&] {
      const auto net = make_mixed(mesh);
      for (const auto& list : {net->parameters(), net->buffers()}) broadcast_all(list, mesh.group(Axis::dp));
      return net;
    };
    const auto plain = make_alike(), on_mesh = make_alike();
    compare_replicas({*plain, mesh.group(Axis::dp)});
    expect_found({*on_mesh, mesh}, on_mesh->cut->weight_fD, "cut.weight: rank 1, not as rank 3");
    auto replicated = fully_shard(make_mixed(mesh), mesh, {.replicate = 2});
    expect_found(replicated, replicated.shards()[0], "; none of them is in the majority");
    auto sharded = fully_shard(make_mixed(mesh), mesh);
    EXPECT_THAT(message_of<ConfigError>([&] { compare_replicas(sharded, {.buffers = false}); }),
                HasSubstr("or `replicate`"));
  });
}

/// A stage that has nothing to compare: the error is that of all ranks.
TEST(ComposedUse, NoReplicasInSomeStages) {
  run_ranks(4, [](World& world) {
    Mesh mesh(Grid::dense({.pp = 2, .dp = 2}), world);
    Pipeline pipe(mesh, at::kCPU,
                  {[&mesh] { return Stage(make_mixed(mesh)); }, [] { return Stage(torch::nn::Tanh()); }},
                  {.shard = FullyShardOptions{}});
    EXPECT_THAT(message_of<ConfigError>([&] { compare_replicas(pipe); }), HasSubstr("there is nothing to compare"));
  });
}

/// A tie within a stage: a file may have either name, also for the ranks of other stages.
TEST(ComposedUse, OtherNamesOfParametersOfAnyStage) {
  const TempFolder folder(memory_folder());
  std::map<std::string, at::Tensor> wanted;
  run_ranks(3, [&](World& world) {
    Mesh mesh(Grid::dense({.pp = 3}), world);
    Pipeline pipe(mesh, at::kCPU, three_stages(mesh));
    const auto renamed = [](const std::string& name) {
      return name.ends_with(".again") ? name.substr(0, name.size() - 5) + "in.weight" : name;
    };
    save_safetensors(pipe, folder / "net.safetensors", {.rename = renamed});
    auto values = values_of(pipe);
    if (world.rank() == 0) wanted = std::move(values);
    {
      const at::NoGradGuard no_grad;
      for (const at::Tensor& parameter : pipe.parameters()) parameter.detach().zero_();
    }
    load_safetensors(pipe, folder / "net.safetensors");
    for (const auto& [name, value] : values_of(pipe)) EXPECT_TRUE(value.equal(wanted.at(name))) << name;
  });
}

/// Each rank has made the stage that is its own, and shards it itself.
TEST(ComposedUse, SafetensorsOfShardedStagesOfOnesOwnPipeline) {
  const TempFolder folder(memory_folder());
  run_ranks(4, [&](World& world) {
    Mesh mesh(Grid::dense({.pp = 2, .dp = 2}), world);
    struct Holder : torch::nn::Module {
      at::Tensor forward(const at::Tensor& x) { return x; }
    };
    auto net = std::make_shared<Holder>();
    net->register_module(text("stage", mesh.coord(Axis::pp)), make_mixed(mesh, mesh.coord(Axis::pp)));
    auto sharded = fully_shard(net, mesh);
    save_safetensors(sharded, folder / "net.safetensors");
    const auto wanted = values_of(sharded);
    EXPECT_TRUE(wanted.contains("stage0.again") && wanted.contains("stage1.again"));
    for (const at::Tensor& shard : sharded.shards()) shard.detach().zero_();
    load_safetensors(sharded, folder / "net.safetensors");
    for (const auto& [name, value] : values_of(sharded)) EXPECT_TRUE(value.equal(wanted.at(name))) << name;
  });
}

}  // namespace
}  // namespace trireme
