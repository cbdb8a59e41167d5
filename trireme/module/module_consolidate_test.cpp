// checkpoint::consolidate() of a module's checkpoint: what load_safetensors() reads again.
#include <filesystem>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/reshape/consolidate.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/self_group.hpp"
#include "trireme/files/safetensors_folder.hpp"
#include "trireme/module/module_checkpoint.hpp"
#include "trireme/module/module_safetensors.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Two dtypes, a buffer of integers, sizes that two ranks do not divide.
torch::nn::Sequential net_of_two_dtypes(double value) {
  torch::nn::Sequential net(torch::nn::Linear(3, 5), torch::nn::BatchNorm1d(5), torch::nn::Linear(5, 1));
  net->children()[2]->to(at::kDouble);
  const at::NoGradGuard no_grad;
  for (at::Tensor parameter : net->parameters())
    parameter.copy_((at::arange(parameter.numel()) * 0.9 + value).sin().view(parameter.sizes()));
  for (at::Tensor buffer : net->buffers()) buffer.fill_(value);
  return net;
}

void expect_same_values(const torch::nn::Sequential& found, const torch::nn::Sequential& wanted) {
  for (const auto& item : wanted->named_parameters())
    EXPECT_TRUE(found->named_parameters()[item.key()].equal(item.value())) << item.key();
  for (const auto& item : wanted->named_buffers())
    EXPECT_TRUE(found->named_buffers()[item.key()].equal(item.value())) << item.key();
}

TEST(Consolidate, OfAModuleThatFourRanksHold) {
  const TempFolder folder(memory_folder());
  for (const int ranks : {1, 4})
    run_ranks(ranks, [&](Group& group) {
      auto model = fully_shard(net_of_two_dtypes(1), group);
      torch::optim::AdamW optimizer(model.shards(), torch::optim::AdamWOptions(0));
      for (at::Tensor shard : model.shards()) shard.mutable_grad() = at::ones_like(shard);
      optimizer.step();
      save_checkpoint(folder / text("of-", ranks), 3, model, {.optimizer = &optimizer});
    });
  for (const int ranks : {1, 4}) {
    const checkpoint::Reader reader(folder / text("of-", ranks) / "step-3");
    const std::filesystem::path out = folder / text("whole-", ranks);
    const checkpoint::Consolidated made = checkpoint::consolidate(reader, out, {.optimizer = true});
    EXPECT_EQ(made.weights.tensors, 9U);
    EXPECT_EQ(made.states.tensors, 6U * 3);
    SelfGroup group;
    torch::nn::Sequential loaded = net_of_two_dtypes(5);
    load_safetensors({loaded, group}, out);
    const torch::nn::Sequential wanted = net_of_two_dtypes(1);
    expect_same_values(loaded, wanted);

    const files::SafetensorsFolder weights(out), states(out / "optimizer");
    EXPECT_EQ(weights.at("0.weight").entry.dtype, files::SafetensorsDtype::F32);
    EXPECT_EQ(weights.at("2.weight").entry.dtype, files::SafetensorsDtype::F64);
    EXPECT_EQ(weights.at("1.num_batches_tracked").entry.dtype, files::SafetensorsDtype::I64);
    const auto average = states.at("2.weight.exp_avg").entry;
    EXPECT_THAT(std::vector<std::int64_t>(average.shape.begin(), average.shape.end()), ElementsAre(1, 5));
    EXPECT_TRUE(states.find("2.weight.step").has_value());
    EXPECT_FALSE(weights.find("2.weight.exp_avg").has_value());
  }
}

TEST(Consolidate, WhatIsRefused) {
  const TempFolder folder(memory_folder());
  SelfGroup group;
  const torch::nn::Sequential net = net_of_two_dtypes(1);
  torch::optim::LBFGS optimizer(net->parameters(), torch::optim::LBFGSOptions(0.1));
  save_checkpoint(folder / "alone", 1, {net, group});
  save_checkpoint(folder / "archive", 1, {net, group}, {.optimizer = &optimizer});
  const auto told = [&](const char* name, const char* out, bool states) {
    const checkpoint::Reader reader(folder / name / "step-1");
    return message_of<CheckpointError>([&] { checkpoint::consolidate(reader, folder / out, {.optimizer = states}); });
  };
  EXPECT_THAT(told("alone", "a", true), HasSubstr("has no states of an optimizer\n  fix: leave out --optimizer"));
  EXPECT_THAT(told("archive", "a", true), HasSubstr("are in torch's own format, without names"));
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  EXPECT_EQ(told("archive", "a", false), "no error");
  for (const bool states : {false, true}) EXPECT_THAT(told("alone", "a", states), HasSubstr("\n  fix: "));
  EXPECT_THAT(told("alone", "a", false), HasSubstr("never overwritten"));
}

}  // namespace
}  // namespace trireme
