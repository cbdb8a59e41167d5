#include "trireme/module/module_checkpoint.hpp"

#include <fstream>
#include <map>
#include <mutex>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/commit.hpp"
#include "trireme/comm/self_group.hpp"
#include "trireme/comm/thread_world.hpp"
#include "trireme/files/folder_lock.hpp"
#include "trireme/module/data_parallel.hpp"
#include "trireme/nn/linear.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

/// Sizes that no number of ranks divides, a scalar parameter, a frozen one, buffers of two dtypes.
struct SavedNetImpl : torch::nn::Module {
  explicit SavedNetImpl(std::int64_t width = 7) {
    body->push_back(torch::nn::Linear(5, width));
    body->push_back(torch::nn::Tanh());
    body->push_back(torch::nn::Linear(width, 3));
    register_module("body", body);
    gain = register_parameter("gain", at::randn({}, at::kDouble));
    frozen = register_parameter("frozen", at::randn({3}, at::kDouble), /*requires_grad=*/false);
    to(at::kDouble);
    calls = register_buffer("calls", at::zeros({}, at::kLong));
    mean = register_buffer("mean", at::zeros({2, 2}, at::kFloat));
  }
  at::Tensor forward(const at::Tensor& x) {
    calls += 1;
    mean.mul_(0.5).add_(calls.to(at::kFloat));
    return body->forward(x) * gain + frozen;
  }
  torch::nn::Sequential body;
  at::Tensor gain, frozen, calls, mean;
};
TORCH_MODULE(SavedNet);

enum class SavedForm { data_parallel, full_shard, shard_grad_op, no_shard };
struct SavedLayout {
  int ranks;
  SavedForm form;
};
const std::vector<SavedLayout> kSavedLayouts = {{1, SavedForm::data_parallel}, {4, SavedForm::data_parallel},
                                                {1, SavedForm::full_shard},    {2, SavedForm::full_shard},
                                                {4, SavedForm::shard_grad_op}, {2, SavedForm::no_shard}};

using OwnOptimizer = std::unique_ptr<torch::optim::Optimizer>;
OwnOptimizer make_saved_optimizer(const std::string& name, std::vector<at::Tensor> tensors) {
  namespace optim = torch::optim;
  if (name == "AdamW") return std::make_unique<optim::AdamW>(std::move(tensors), optim::AdamWOptions(0.05));
  if (name == "Adam") return std::make_unique<optim::Adam>(std::move(tensors), optim::AdamOptions(0.05).amsgrad(true));
  if (name == "RMSprop") return std::make_unique<optim::RMSprop>(std::move(tensors));
  return std::make_unique<optim::SGD>(std::move(tensors), optim::SGDOptions(0.1).momentum(name == "SGD" ? 0.9 : 0));
}

/// A net in one of the forms, with its optimizer.
class SavedTraining {
 public:
  SavedTraining(Group& group, SavedForm form, const std::string& optimizer, std::uint64_t seed = 1,
                std::int64_t width = 7)
      : group_(group) {
    {
      static std::mutex mutex;  // ranks are threads with one generator
      const std::lock_guard lock(mutex);
      at::manual_seed(seed);
      net = SavedNet(width);
    }
    if (form == SavedForm::data_parallel) {
      parallel_.emplace(*net, group);
    } else {
      sharded.emplace(net.ptr(), group,
                      FullyShardOptions{.sharding = form == SavedForm::full_shard      ? Sharding::full_shard
                                                    : form == SavedForm::shard_grad_op ? Sharding::shard_grad_op
                                                                                       : Sharding::no_shard});
    }
    own = make_saved_optimizer(optimizer, sharded ? sharded->shards() : trained_parameters());
  }

  CheckpointedModule what() { return sharded ? CheckpointedModule(*sharded) : CheckpointedModule(net, group_); }

  void step(int step) {
    const at::Tensor all = (at::arange(40, at::kDouble) * 0.37 + step).sin().view({8, 5});
    const at::Tensor x = all.tensor_split(group_.size())[static_cast<std::size_t>(group_.rank())];
    own->zero_grad();
    const at::Tensor y = sharded ? (*sharded)(x) : net->forward(x);
    (y - x.narrow(1, 0, 3).cos()).square().mean().backward();
    own->step();
  }

  std::vector<NamedTensor> state() const {
    if (sharded) return sharded->state();
    std::vector<NamedTensor> out;
    for (const NamedTensor& parameter : distinct_parameters(*net))
      out.push_back({parameter.name, parameter.value.detach().clone()});
    for (const auto& buffer : net->named_buffers()) out.push_back({buffer.key(), buffer.value().clone()});
    return out;
  }

  SavedNet net{nullptr};
  std::optional<FullyShard<SavedNetImpl>> sharded;
  OwnOptimizer own;

 private:
  std::vector<at::Tensor> trained_parameters() const {
    std::vector<at::Tensor> out;
    for (const NamedTensor& parameter : distinct_parameters(*net))
      if (parameter.value.requires_grad()) out.push_back(parameter.value);
    return out;
  }

  Group& group_;
  std::optional<DataParallel> parallel_;
};

std::map<std::string, at::Tensor> tensors_by_name(const std::vector<NamedTensor>& tensors) {
  std::map<std::string, at::Tensor> out;
  for (const NamedTensor& tensor : tensors) out[tensor.name] = tensor.value;
  return out;
}

void expect_same_tensors(const std::vector<NamedTensor>& found, const std::vector<NamedTensor>& wanted,
                         double tolerance) {
  const auto a = tensors_by_name(found), b = tensors_by_name(wanted);
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : b) {
    ASSERT_TRUE(a.contains(name)) << name;
    const double difference = (a.at(name).to(at::kDouble) - tensor.to(at::kDouble)).abs().max().item<double>();
    EXPECT_LE(difference, tolerance) << name;
  }
}

constexpr int kBefore = 3, kAfter = 3;

/// Three steps, a checkpoint, and three more with any other form and number of ranks: as one rank without a checkpoint.
TEST(ModuleCheckpoint, LoadsOnAnyLayout) {
  for (const std::string optimizer : {"AdamW", "Adam", "SGD", "SGD without momentum"}) {
    std::vector<NamedTensor> in_the_middle, at_the_end;
    run_ranks(1, [&](Group& group) {
      SavedTraining one(group, SavedForm::data_parallel, optimizer);
      for (int step = 0; step < kBefore + kAfter; ++step) {
        one.step(step);
        if (step + 1 == kBefore) in_the_middle = one.state();
      }
      at_the_end = one.state();
    });
    for (const SavedLayout& saves : kSavedLayouts) {
      const TempFolder folder(memory_folder());
      run_ranks(saves.ranks, [&](Group& group) {
        SavedTraining some(group, saves.form, optimizer);
        for (int step = 0; step < kBefore; ++step) some.step(step);
        const auto path = save_checkpoint(folder / "saved", kBefore, some.what(), {.optimizer = some.own.get()});
        EXPECT_EQ(path, folder / "saved" / "step-3");
        EXPECT_EQ(checkpoint::why_not_valid(path), "");
        some.step(kBefore);  // it goes on
      });
      for (const SavedLayout& loads : kSavedLayouts) {
        SCOPED_TRACE(text(optimizer, ", from ", saves.ranks, " ranks, form ", static_cast<int>(saves.form), ", to ",
                          loads.ranks, ", form ", static_cast<int>(loads.form)));
        run_ranks(loads.ranks, [&](Group& group) {
          SavedTraining other(group, loads.form, optimizer, /*seed=*/2);
          other.step(100);  // all of it is overwritten
          EXPECT_EQ(load_checkpoint(folder / "saved", other.what(), {.optimizer = other.own.get()}), kBefore);
          expect_same_tensors(other.state(), in_the_middle, 1e-9);
          for (int step = kBefore; step < kBefore + kAfter; ++step) other.step(step);
          const std::vector<NamedTensor> found = other.state();
          if (group.rank() == 0) expect_same_tensors(found, at_the_end, 1e-9);
        });
      }
    }
  }
}

/// The same bits, also of the states, and without an optimizer.
TEST(ModuleCheckpoint, IsExact) {
  const TempFolder folder(memory_folder());
  SelfGroup group;
  SavedTraining first(group, SavedForm::data_parallel, "AdamW"), second(group, SavedForm::data_parallel, "AdamW", 2),
      weights(group, SavedForm::data_parallel, "AdamW", 3);
  for (int step = 0; step < 4; ++step) first.step(step);
  save_checkpoint(folder / "c", 4, first.what(), {.optimizer = first.own.get()});
  load_checkpoint(folder / "c", second.what(), {.optimizer = second.own.get()});
  load_checkpoint(folder / "c" / "step-4", weights.what());
  expect_same_tensors(second.state(), first.state(), 0);
  expect_same_tensors(weights.state(), first.state(), 0);
  first.step(4), second.step(4);
  expect_same_tensors(second.state(), first.state(), 0);
  EXPECT_TRUE(weights.own->state().empty());
}

TEST(ModuleCheckpoint, TheNewestCompleteOneAndAllThatIsWrong) {
  const TempFolder folder(memory_folder());
  SelfGroup group;
  SavedTraining net(group, SavedForm::data_parallel, "AdamW");
  const auto told = [&](const std::string& path, const CheckpointedModule& what, torch::optim::Optimizer* optimizer) {
    return message_of<CheckpointError>([&] { load_checkpoint(folder / path, what, {.optimizer = optimizer}); });
  };
  EXPECT_THAT(told("nothing", net.what(), nullptr), HasSubstr("nothing: there is no such folder"));
  std::filesystem::create_directory(folder / "empty");
  EXPECT_THAT(told("empty", net.what(), nullptr), HasSubstr("checkpoint_metadata.json"));

  for (const int step : {1, 2, 10}) save_checkpoint(folder / "c", step, net.what(), {.optimizer = net.own.get()});
  EXPECT_EQ(load_checkpoint(folder / "c", net.what()), 10);
  EXPECT_EQ(load_checkpoint(folder / "c" / "step-2", net.what()), 2);
  EXPECT_THAT(message_of<CheckpointError>([&] { save_checkpoint(folder / "c", 10, net.what()); }),
              HasSubstr("step-10"));
  save_checkpoint(folder / "c", 11, net.what(), {.keep = 2});
  EXPECT_FALSE(std::filesystem::exists(folder / "c" / "step-2"));
  std::filesystem::remove(folder / "c" / "step-11" / "checkpoint_metadata.json");
  EXPECT_EQ(load_checkpoint(folder / "c", net.what()), 10) << "the newest that is complete";

  SavedTraining wider(group, SavedForm::data_parallel, "AdamW", 1, /*width=*/8);
  EXPECT_THAT(told("c", wider.what(), nullptr),
              HasSubstr("body.0.weight (weight) has shape (7, 5) in the checkpoint, (8, 5) in the module"));
  torch::nn::Linear linear(2, 2);
  EXPECT_THAT(told("c", {linear, group}, nullptr), HasSubstr("weight (weight) is not in the checkpoint"));
  EXPECT_THAT(told("c", {linear, group}, nullptr),
              HasSubstr("body.0.bias (weight) of the checkpoint has no place in the module"));

  net.step(0);
  save_checkpoint(folder / "c", 12, net.what(), {.optimizer = net.own.get()});
  SavedTraining sgd(group, SavedForm::data_parallel, "SGD");
  EXPECT_THAT(told("c", sgd.what(), sgd.own.get()),
              HasSubstr("its optimizer states are of AdamW, the optimizer is SGD\n  fix: "));
  torch::optim::AdamW other(net.net->parameters(), torch::optim::AdamWOptions(0.1).amsgrad(true));
  EXPECT_THAT(told("c", net.what(), &other), HasSubstr("body.0.bias (max_exp_avg_sq) is not in the checkpoint"));
  save_checkpoint(folder / "weights", 1, net.what());
  EXPECT_THAT(told("weights", net.what(), net.own.get()), HasSubstr("holds no optimizer states\n  fix: "));
}

TEST(ModuleCheckpoint, RefusesWhatItCannotSave) {
  const TempFolder folder(memory_folder());
  SelfGroup group;
  SavedTraining net(group, SavedForm::data_parallel, "SGD"), other(group, SavedForm::data_parallel, "SGD");
  const auto told = [&](const CheckpointedModule& what, torch::optim::Optimizer* optimizer) {
    return message_of<ConfigError>([&] { save_checkpoint(folder / "c", 1, what, {.optimizer = optimizer}); });
  };
  EXPECT_THAT(told(net.what(), other.own.get()), HasSubstr("which is not the module's\n  fix: "));
  SavedTraining rms(group, SavedForm::data_parallel, "RMSprop");
  EXPECT_THAT(told(rms.what(), rms.own.get()), HasSubstr("not torch's Adam, AdamW or SGD"));
  EXPECT_FALSE(std::filesystem::exists(folder / "c"));
  EXPECT_THAT(message_of<ConfigError>([&] { save_checkpoint(folder / "c", -1, net.what()); }), HasSubstr("step -1"));
  std::filesystem::create_directory(folder / "locked");
  const files::FolderLock lock(folder / "locked");
  EXPECT_THAT(message_of<ConfigError>([&] { save_checkpoint(folder / "locked", 1, net.what()); }), HasSubstr("locked"));
  EXPECT_THAT(message_of<CheckpointError>([&] { save_checkpoint(folder / "a" / "b", 1, net.what()); }),
              HasSubstr("could not be made: No such file or directory"));
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.tp = 2}), world);
    ColumnLinear cut(4, 4, mesh);
    EXPECT_THAT(message_of<ConfigError>([&] { save_checkpoint(folder / "c", 1, {cut, mesh.world_group()}); }),
                HasSubstr("weight is cut over ranks"));
  });
}

/// On all ranks, with nothing changed, also where only one rank reads the damaged bytes.
TEST(ModuleCheckpoint, DamageIsFoundBeforeAnythingChanges) {
  const TempFolder folder(memory_folder());
  run_ranks(2, [&](Group& group) {
    SavedTraining net(group, SavedForm::full_shard, "AdamW");
    net.step(0);
    save_checkpoint(folder / "c", 1, net.what(), {.optimizer = net.own.get()});
  });
  const std::filesystem::path file = folder / "c" / "step-1" / "rank-00001.safetensors";
  std::string bytes = file_contents(file);
  bytes[bytes.size() - 20] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  run_ranks(2, [&](Group& group) {
    SavedTraining net(group, SavedForm::full_shard, "AdamW", 2);
    const std::vector<NamedTensor> before = net.state();
    const std::string told =
        message_of<CheckpointError>([&] { load_checkpoint(folder / "c", net.what(), {.optimizer = net.own.get()}); });
    EXPECT_THAT(told, HasSubstr("rank-00001.safetensors"));
    expect_same_tensors(net.state(), before, 0);
    EXPECT_TRUE(net.own->state().empty());
  });
}

}  // namespace
}  // namespace trireme
