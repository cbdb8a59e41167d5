// Modules of a library user over all axes at once: tensor-parallel layers, experts, shards, pipelines, and checkpoints
// from one layout to another.
#include <map>
#include <optional>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/adamw.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/layout/grid.hpp"
#include "trireme/module/module_checkpoint.hpp"
#include "trireme/module/module_safetensors.hpp"
#include "trireme/module/pipeline.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/parallel/expert/experts.hpp"
#include "trireme/parallel/tensor/embedding.hpp"
#include "trireme/parallel/tensor/linear.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kVocab = 16, kLength = 6, kWidth = 8, kHeads = 4, kHidden = 12, kExperts = 4, kBatch = 8;
constexpr int kStages = 4;

struct EmbedStageImpl : torch::nn::Module {
  explicit EmbedStageImpl(const Parallel& parallel)
      : tokens(register_module("tokens", std::make_shared<ParallelVocabulary>(kVocab, kWidth, parallel))) {}
  at::Tensor forward(const at::Tensor& ids) { return tokens->forward(ids.flatten()); }
  std::shared_ptr<ParallelVocabulary> tokens;
};

struct BlockStageImpl : torch::nn::Module {
  BlockStageImpl(const Parallel& parallel, bool has_experts)
      : norm1(register_module("norm1", std::make_shared<RmsNorm>(kWidth, 1e-6, parallel, parallel.partial_between()))),
        norm2(register_module("norm2", std::make_shared<RmsNorm>(kWidth, 1e-6, parallel, parallel.partial_between()))),
        proj(register_module("proj", std::make_shared<RowLinear>(kWidth, kWidth, parallel, RowOptions{.bias = true}))) {
    for (const char* name : {"q", "k", "v"})
      qkv.push_back(register_module(name, std::make_shared<ColumnLinear>(kWidth, kWidth, parallel)));
    if (has_experts) {
      experts = register_module(
          "experts",
          std::make_shared<ExpertMlp>(RouterOptions{.features = kWidth, .experts = kExperts}, kHidden, parallel));
      return;
    }
    up = register_module("up", std::make_shared<ColumnLinear>(kWidth, kHidden, parallel, ColumnOptions{.bias = true}));
    down = register_module("down", std::make_shared<RowLinear>(kHidden, kWidth, parallel));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor in = norm1->forward(x);
    std::vector<at::Tensor> heads;  // [b, heads of this rank, s, features of a head]
    for (const auto& linear : qkv)
      heads.push_back(linear->forward(in)
                          .view({-1, kLength, linear->weight_fD.size(0) / (kWidth / kHeads), kWidth / kHeads})
                          .transpose(1, 2));
    const at::Tensor mixed =
        at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.0, /*is_causal=*/true);
    const at::Tensor y = x + proj->forward(mixed.transpose(1, 2).flatten(2).flatten(0, 1));
    const at::Tensor rest = norm2->forward(y);
    if (!experts) return y + down->forward(at::gelu(up->forward(rest)));
    ForwardContext context;
    context.batch = mixed.size(0);
    context.length = context.whole_length = kLength;
    context.positions_T = at::arange(kLength).repeat({context.batch});
    context.samples_T = at::arange(context.batch).repeat_interleave(kLength);
    return y + experts->forward(rest, context);
  }
  std::shared_ptr<RmsNorm> norm1, norm2;
  std::vector<std::shared_ptr<ColumnLinear>> qkv;
  std::shared_ptr<RowLinear> proj, down;
  std::shared_ptr<ColumnLinear> up;
  std::shared_ptr<ExpertMlp> experts;
};

struct HeadStageImpl : torch::nn::Module {
  explicit HeadStageImpl(const Parallel& parallel)
      : norm(register_module("norm", std::make_shared<RmsNorm>(kWidth, 1e-6, parallel, parallel.partial_between()))),
        out(register_module(
            "out", std::make_shared<ColumnLinear>(kWidth, kVocab, parallel, ColumnOptions{.gather_output = true}))) {
    count = register_buffer("count", at::full({1}, 7.0));
  }
  at::Tensor forward(const at::Tensor& x) { return out->forward(norm->forward(x)).view({-1, kLength, kVocab}); }
  std::shared_ptr<RmsNorm> norm;
  std::shared_ptr<ColumnLinear> out;
  at::Tensor count;
};

enum class Form { plain, sharded, pipeline };
struct Cell {
  Form form = Form::plain;
  int dp = 1, tp = 1, pp = 1, ep = 1;
  bool sequence_parallel = false;
  std::optional<Sharding> sharding = std::nullopt;
  int replicate = 1;
  PipelineOptions pipeline = {};

  Grid grid() const { return Grid::dense({.pp = pp, .dp = dp, .tp = tp}); }
  std::string str() const {
    return text("form ", static_cast<int>(form), " dp ", dp, " tp ", tp, " pp ", pp, " ep ", ep, " sp ",
                sequence_parallel, " sharding ", sharding ? static_cast<int>(*sharding) : -1, " replicate ", replicate,
                " ", pipeline.schedule);
  }
};

/// A stage with values that depend on its number alone.
torch::nn::AnyModule make_stage(int number, Mesh& mesh, bool sequence_parallel, std::uint64_t seed) {
  const InitScope scope(at::kCPU, at::kDouble);
  const Parallel parallel(mesh, sequence_parallel);
  torch::nn::AnyModule out;
  if (number == 0)
    out = torch::nn::AnyModule(std::make_shared<EmbedStageImpl>(parallel));
  else if (number == kStages - 1)
    out = torch::nn::AnyModule(std::make_shared<HeadStageImpl>(parallel));
  else
    out = torch::nn::AnyModule(std::make_shared<BlockStageImpl>(parallel, number == 2));
  init_parameters(*out.ptr(), mesh, {.seed = seed + static_cast<std::uint64_t>(number), .range = 0.3});
  return out;
}

at::Tensor composed_loss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
}

/// The model of a cell on one of its ranks, and an optimizer.
class Composed {
 public:
  Composed(const Cell& cell, World& world, std::uint64_t seed = 1)
      : cell_(cell), mesh_(cell.grid(), world, {}, expert_view(cell.grid(), cell.ep)) {
    const FullyShardOptions shard{.sharding = cell.sharding.value_or(Sharding::full_shard),
                                  .replicate = cell.replicate};
    std::vector<torch::nn::AnyModule> all;
    if (cell.form != Form::pipeline)
      for (int i = 0; i < kStages; ++i) all.push_back(make_stage(i, mesh_, cell.sequence_parallel, seed));
    if (cell.form == Form::plain) {
      for (const torch::nn::AnyModule& stage : all) net_->push_back(stage);
    } else if (cell.form == Form::sharded) {
      sharded_.emplace(fully_shard(std::move(all), mesh_, shard));
    } else {
      std::vector<StageBuilder> builders;
      for (int i = 0; i < kStages; ++i)
        builders.emplace_back([this, i, seed] { return Stage(make_stage(i, mesh_, cell_.sequence_parallel, seed)); });
      PipelineOptions options = cell.pipeline;
      if (cell.sharding) options.shard = shard;
      pipe_.emplace(mesh_, at::kCPU, std::move(builders), options);
    }
    optimizer_ = std::make_unique<torch::optim::AdamW>(pipe_      ? pipe_->parameters()
                                                       : sharded_ ? sharded_->shards()
                                                                  : net_->parameters(),
                                                       torch::optim::AdamWOptions(0.02));
  }

  struct Result {
    double loss, norm;
  };
  Result step(int number) {
    const at::Tensor all = (at::arange(kBatch * (kLength + 1)) * (number + 3) + number).remainder(kVocab);
    const std::int64_t each = kBatch / cell_.dp;
    const at::Tensor own =
        all.square().remainder(kVocab).view({kBatch, kLength + 1}).narrow(0, mesh_.coord(Axis::dp) * each, each);
    const at::Tensor ids = own.narrow(1, 0, kLength), targets = own.narrow(1, 1, kLength).contiguous();
    optimizer_->zero_grad();
    at::Tensor loss;
    double norm = 0;
    if (pipe_) {
      loss = pipe_->step({ids}, targets, composed_loss);
      norm = pipe_->clip_grad_norm(0.5);
    } else {
      loss = composed_loss(sharded_ ? (*sharded_)(ids) : net_->forward(ids), targets);
      loss.backward();
      norm = sharded_ ? sharded_->clip_grad_norm(0.5) : clip();
      loss = mesh_.token_group().all_reduce(loss.detach().view({1}), Reduce::avg).wait()[0];
    }
    optimizer_->step();
    return {loss.item<double>(), norm};
  }

  CheckpointedModule what() {
    if (pipe_) return *pipe_;
    if (sharded_) return *sharded_;
    return {net_, mesh_};
  }
  torch::optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  /// Of one rank.
  double clip() const {
    double squares = 0;
    for (const at::Tensor& parameter : net_->parameters()) squares += parameter.grad().square().sum().item<double>();
    const double norm = std::sqrt(squares);
    if (norm > 0.5)
      for (const at::Tensor& parameter : net_->parameters()) at::Tensor(parameter.grad()).mul_(0.5 / norm);
    return norm;
  }

  const Cell cell_;
  Mesh mesh_;
  torch::nn::Sequential net_;
  std::optional<FullyShard<torch::nn::SequentialImpl>> sharded_;
  std::optional<Pipeline> pipe_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

constexpr int kComposedSteps = 4, kSavedAfter = 2;

struct Learned {
  std::vector<Composed::Result> steps;
  std::map<std::string, at::Tensor> state;  // as load_safetensors() would read it
};

std::map<std::string, at::Tensor> state_in(const CheckpointedModule& what) {
  std::map<std::string, at::Tensor> out;
  for_each_whole(what, [&](const std::string& name, const at::Tensor& value) { out[name] = value.detach().clone(); });
  return out;
}

/// On all ranks of a cell; saved in the middle, if there is a folder.
Learned learn(const Cell& cell, const std::filesystem::path& folder = {}) {
  Learned out;
  run_ranks(cell.grid().size(), [&](World& world) {
    Composed model(cell, world);
    for (int step = 0; step < kComposedSteps; ++step) {
      const Composed::Result result = model.step(step);
      if (world.rank() == 0) out.steps.push_back(result);
      if (step + 1 == kSavedAfter && !folder.empty())
        save_checkpoint(folder, kSavedAfter, model.what(), {.optimizer = &model.optimizer(), .random = true});
    }
    auto state = state_in(model.what());
    if (world.rank() == 0) out.state = std::move(state);
  });
  return out;
}

void expect_equal(const Learned& found, const Learned& wanted, std::size_t first_step = 0) {
  ASSERT_EQ(found.steps.size() + first_step, wanted.steps.size());
  for (std::size_t i = 0; i < found.steps.size(); ++i) {
    EXPECT_NEAR(found.steps[i].loss / wanted.steps[i + first_step].loss, 1, 1e-12) << "step " << i + first_step;
    EXPECT_NEAR(found.steps[i].norm / wanted.steps[i + first_step].norm, 1, 1e-12) << "step " << i + first_step;
  }
  ASSERT_EQ(found.state.size(), wanted.state.size());
  for (const auto& [name, value] : wanted.state) {
    ASSERT_TRUE(found.state.contains(name)) << name;
    EXPECT_LE((found.state.at(name) - value).norm().item<double>(), 1e-10 * value.norm().item<double>() + 1e-13)
        << name;
  }
}

const std::vector<Cell> kCells{
    {.form = Form::sharded, .dp = 2},
    {.form = Form::sharded, .tp = 2, .sequence_parallel = true},
    {.form = Form::sharded, .dp = 2, .tp = 2, .ep = 2, .sharding = Sharding::shard_grad_op},
    {.form = Form::sharded, .dp = 4, .tp = 2, .ep = 2, .sequence_parallel = true, .replicate = 2},
    {.form = Form::sharded, .dp = 2, .tp = 2, .sharding = Sharding::no_shard},
    {.form = Form::pipeline, .pp = 4},
    {.form = Form::pipeline, .dp = 2, .tp = 2, .pp = 2, .ep = 2, .sequence_parallel = true},
    {.form = Form::pipeline, .dp = 2, .tp = 2, .pp = 2, .sharding = Sharding::full_shard},
    {.form = Form::pipeline,
     .dp = 2,
     .tp = 2,
     .pp = 2,
     .ep = 2,
     .sequence_parallel = true,
     .sharding = Sharding::full_shard,
     .pipeline = {.schedule = "interleaved-1f1b", .microbatches = 2, .virtual_stages = 2}},
    {.form = Form::pipeline,
     .dp = 4,
     .pp = 2,
     .sharding = Sharding::shard_grad_op,
     .replicate = 2,
     .pipeline = {.schedule = "afab", .microbatches = 2}}};

TEST(ComposedModule, EqualsOneRankOnEveryLayout) {
  const Learned wanted = learn({});
  EXPECT_GT(wanted.steps[0].norm, 0.5) << "the gradients are clipped";
  for (const Cell& cell : kCells) {
    SCOPED_TRACE(cell.str());
    expect_equal(learn(cell), wanted);
  }
}

TEST(ComposedModule, ACheckpointLoadsOnAnyLayout) {
  const Learned wanted = learn({});
  for (const Cell& saves : {Cell{}, kCells[3], kCells[7], kCells[8]}) {
    const TempFolder folder(memory_folder());
    learn(saves, folder / "c");
    for (const Cell& loads : {Cell{}, kCells[0], kCells[2], kCells[5], kCells[9]}) {
      SCOPED_TRACE("from " + saves.str() + " to " + loads.str());
      Learned found;
      run_ranks(loads.grid().size(), [&](World& world) {
        Composed model(loads, world, /*seed=*/5);
        model.step(9);  // all of it is overwritten
        ASSERT_EQ(load_checkpoint(folder / "c", model.what(), {.optimizer = &model.optimizer()}), kSavedAfter);
        for (int step = kSavedAfter; step < kComposedSteps; ++step) {
          const Composed::Result result = model.step(step);
          if (world.rank() == 0) found.steps.push_back(result);
        }
        auto state = state_in(model.what());
        if (world.rank() == 0) found.state = std::move(state);
      });
      expect_equal(found, wanted, kSavedAfter);
    }
  }
}

/// Whole tensors in one file, from any layout to any other.
TEST(ComposedModule, SafetensorsOfAnyLayout) {
  const TempFolder folder(memory_folder());
  std::map<std::string, at::Tensor> wanted;
  run_ranks(8, [&](World& world) {
    Composed model(kCells[8], world);
    save_safetensors(model.what(), folder / "whole.safetensors");
    auto state = state_in(model.what());
    if (world.rank() == 0) wanted = std::move(state);
  });
  for (const Cell& cell : {Cell{}, kCells[2], kCells[5], kCells[7]})
    run_ranks(cell.grid().size(), [&](World& world) {
      Composed model(cell, world, /*seed=*/5);
      load_safetensors(model.what(), folder / "whole.safetensors");
      const auto found = state_in(model.what());
      ASSERT_EQ(found.size(), wanted.size());
      for (const auto& [name, value] : wanted) EXPECT_TRUE(found.at(name).equal(value)) << name << ", " << cell.str();
    });
}

TEST(ComposedModule, Refused) {
  run_ranks(2, [](World& world) {
    Mesh mesh(Grid::dense({.tp = 2}), world);
    const auto cut = std::make_shared<ColumnLinear>(4, 4, mesh);
    EXPECT_THAT(message_of<ConfigError>([&] { static_cast<void>(fully_shard(cut, mesh.group(Axis::dp))); }),
                HasSubstr("weight is cut over 2 ranks\n  fix: fully_shard(net, mesh)"));
    EXPECT_THAT(message_of<ConfigError>([&] { static_cast<void>(fully_shard(cut, mesh, {.replicate = 2})); }),
                HasSubstr("replicate = 2 does not divide the 1 ranks of dp x cp"));
    EXPECT_THAT(message_of<ConfigError>([&] {
                  static_cast<void>(fully_shard(torch::nn::Linear(2, 2), mesh.world_group(), {.replicate = 2}));
                }),
                HasSubstr("replicate = 2 needs a mesh\n  fix: fully_shard(net, mesh, options)"));
  });
}

}  // namespace
}  // namespace trireme
