#include "trireme/module/module_safetensors.hpp"

#include <fstream>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/self_group.hpp"
#include "trireme/files/safetensors_folder.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(const at::Tensor& shared) : weight(register_parameter("weight", shared)) {}
  at::Tensor weight;
};
TORCH_MODULE(Tied);

/// Widths that no number of ranks divides, a weight with two names, a buffer, two dtypes.
struct WrittenNetImpl : torch::nn::Module {
  explicit WrittenNetImpl(double seed) {
    register_module("body", body);
    head = register_module("head", Tied(body[0]->as<torch::nn::Linear>()->weight));
    gain = register_parameter("gain", at::ones({3}, at::kDouble));
    mean = register_buffer("mean", at::zeros({2}));
    const at::NoGradGuard no_grad;
    for (at::Tensor tensor : parameters())
      tensor.copy_((at::arange(tensor.numel()) * 0.9 + seed).sin().view(tensor.sizes()));
    mean.fill_(seed);
  }
  at::Tensor forward(const at::Tensor& x) { return body->forward(x); }
  torch::nn::Sequential body{torch::nn::Linear(5, 7), torch::nn::Linear(7, 3)};
  Tied head = nullptr;
  at::Tensor gain, mean;
};
TORCH_MODULE(WrittenNet);

void expect_equal_nets(const std::vector<NamedTensor>& found, const torch::nn::Module& wanted) {
  for (const NamedTensor& item : found) {
    const at::Tensor* parameter = wanted.named_parameters().find(item.name);
    EXPECT_TRUE(item.value.equal(parameter ? *parameter : wanted.named_buffers()[item.name])) << item.name;
  }
}

std::vector<NamedTensor> all_of(const torch::nn::Module& net) {
  std::vector<NamedTensor> out;
  for (const auto& list : {net.named_parameters(), net.named_buffers()})
    for (const auto& item : list) out.push_back({item.key(), item.value()});
  return out;
}

/// Saved by any number of ranks, sharded or not, as a file or a folder, and loaded by any other.
TEST(ModuleSafetensors, EveryForm) {
  const TempFolder folder(memory_folder());
  const WrittenNet wanted(1);
  int number = 0;
  for (const int savers : {1, 3})
    for (const bool sharded : {false, true})
      for (const char* suffix : {".safetensors", ""}) {
        const std::filesystem::path path = folder / text("net", number++, suffix);
        run_ranks(savers, [&](Group& group) {
          WrittenNet net(1);
          if (!sharded) {
            save_safetensors({net, group}, path);
            return;
          }
          auto model = fully_shard(net, group);
          save_safetensors(model, path, {.max_shard_bytes = 64});
        });
        EXPECT_EQ(files::SafetensorsFolder(path).names().size(), 6U) << "the shared weight once";
        for (const int loaders : {1, 2})
          run_ranks(loaders, [&](Group& group) {
            WrittenNet net(5);
            load_safetensors({net, group}, path);
            expect_equal_nets(all_of(*net), *wanted);
            WrittenNet other(6);
            auto model = fully_shard(other, group);
            load_safetensors(model, path);
            expect_equal_nets(model.state(), *wanted);
          });
      }
}

TEST(ModuleSafetensors, OtherNamesAndMissingOnes) {
  const TempFolder folder(memory_folder());
  SelfGroup group;
  const std::filesystem::path path = folder / "a.safetensors";
  WrittenNet net(1), other(2);
  const auto renamed = [](const std::string& name) { return "model." + name; };
  save_safetensors({net, group}, path, {.rename = renamed});
  EXPECT_THAT(message_of<CheckpointError>([&] { load_safetensors({other, group}, path); }),
              AllOf(HasSubstr("is not in the file"), HasSubstr("model.gain of the file has no place in the module"),
                    HasSubstr("LoadSafetensorsOptions::rename")));
  expect_equal_nets(all_of(*other), *WrittenNet(2));
  load_safetensors({other, group}, path, {.rename = renamed});
  expect_equal_nets(all_of(*other), *net);
  // The shared weight under its second name, another dtype, and nothing else.
  const std::filesystem::path part = folder / "b.safetensors";
  torch::nn::Sequential head({{"head", torch::nn::AnyModule(torch::nn::Linear(5, 7))}});
  head->to(at::kBFloat16);
  save_safetensors({head, group}, part);
  load_safetensors({other, group}, part, {.strict = false});
  EXPECT_TRUE(other->head->weight.equal(head->named_parameters()["head.weight"].to(at::kFloat)));
  EXPECT_TRUE(other->gain.equal(net->gain));
  torch::nn::Sequential wide({{"head", torch::nn::AnyModule(torch::nn::Linear(6, 7))}});
  EXPECT_THAT(message_of<CheckpointError>([&] { load_safetensors({wide, group}, part); }),
              HasSubstr("head.weight has shape (7, 5) in the file, (7, 6) in the module"));
  EXPECT_THAT(message_of<CheckpointError>([&] { load_safetensors({wide, group}, folder / "none"); }),
              HasSubstr("none"));
}

/// Rank 0 cannot write: an error of all ranks, and nobody waits.
TEST(ModuleSafetensors, WhatCannotBeWritten) {
  const TempFolder folder(memory_folder());
  std::filesystem::create_directory(folder / "full");
  std::ofstream(folder / "full" / "x") << "x";
  run_ranks(2, [&](Group& group) {
    auto model = fully_shard(WrittenNet(1), group);
    EXPECT_THAT(message_of<CheckpointError>([&] { save_safetensors(model, folder / "full"); }), HasSubstr("rank 0: "));
    EXPECT_NE(message_of<Error>([&] { save_safetensors(model, folder / "no" / "folder" / "x.safetensors"); }),
              "no error");
  });
}

}  // namespace
}  // namespace trireme
