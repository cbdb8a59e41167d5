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
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/self_group.hpp"
#include "trireme/files/folder_lock.hpp"
#include "trireme/module/data_parallel.hpp"
#include "trireme/parallel/tensor/linear.hpp"
#include "trireme/testing/recording_fs.hpp"
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
  if (name == "RMSprop")
    return std::make_unique<optim::RMSprop>(std::move(tensors),
                                            optim::RMSpropOptions(0.01).momentum(0.9).centered(true));
  if (name == "Adagrad") return std::make_unique<optim::Adagrad>(std::move(tensors), optim::AdagradOptions(0.05));
  if (name == "LBFGS") return std::make_unique<optim::LBFGS>(std::move(tensors), optim::LBFGSOptions(0.1).max_iter(3));
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
  for (const std::string optimizer : {"AdamW", "Adam", "SGD", "SGD without momentum", "Adagrad", "RMSprop"}) {
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
        const auto [path, warning] =
            save_checkpoint(folder / "saved", kBefore, some.what(), {.optimizer = some.own.get()});
        EXPECT_EQ(warning, "");
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
  run_ranks(2, [&](Group& two) {
    SavedTraining lbfgs(two, SavedForm::full_shard, "LBFGS");
    EXPECT_THAT(told(lbfgs.what(), lbfgs.own.get()), HasSubstr("states of this optimizer are not known by name"));
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "c"));
  EXPECT_THAT(message_of<ConfigError>([&] { save_checkpoint(folder / "c", -1, net.what()); }), HasSubstr("step -1"));
  std::filesystem::create_directory(folder / "locked");
  const files::FolderLock lock(folder / "locked");
  EXPECT_THAT(message_of<ConfigError>([&] { save_checkpoint(folder / "locked", 1, net.what()); }), HasSubstr("locked"));
  EXPECT_THAT(message_of<CheckpointError>([&] { save_checkpoint(folder / "a" / "b", 1, net.what()); }),
              HasSubstr("could not be made: No such file or directory"));
}

/// By the mesh of the layer, whatever group is given.
TEST(ModuleCheckpoint, RefusesTensorParallelLayersWithoutTheirMesh) {
  const TempFolder folder(memory_folder());
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.tp = 2}), world);
    const auto cut = std::make_shared<ColumnLinear>(4, 4, mesh);
    const auto told = [&](const CheckpointedModule& what) {
      return message_of<ConfigError>([&] { save_checkpoint(folder / "c", 1, what); });
    };
    const auto says = HasSubstr("weight is cut over 2 ranks, and each has another part of it\n  fix: ");
    EXPECT_THAT(told({*cut, mesh.world_group()}), says);
    EXPECT_THAT(told({*cut, mesh.group(Axis::dp)}), says) << "a group of one rank";
    EXPECT_THAT(message_of<ConfigError>([&] { load_checkpoint(folder / "c", {*cut, mesh.group(Axis::dp)}); }), says);
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "c"));
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    ColumnLinear whole(4, 4, mesh);
    whole.to(at::kDouble);
    save_checkpoint(folder / "c", 1, {whole, mesh.group(Axis::dp)});  // tp has one rank
  });
  EXPECT_EQ(checkpoint::why_not_valid(folder / "c" / "step-1"), "");
}

/// Steps only go up: a lower one would be removed first, and not be loaded.
TEST(ModuleCheckpoint, NeverRemovesWhatItHasJustSaved) {
  const TempFolder folder(memory_folder());
  SelfGroup group;
  SavedTraining net(group, SavedForm::data_parallel, "SGD");
  const auto steps = [&] {
    std::vector<std::int64_t> out;
    for (const auto& found : checkpoint::checkpoints_in(folder / "c")) out.push_back(found.step);
    return out;
  };
  for (const int step : {100, 150, 200}) save_checkpoint(folder / "c", step, net.what());
  EXPECT_EQ(load_checkpoint(folder / "c" / "step-100", net.what()), 100);
  for (const std::int64_t keep : {0, 2})
    EXPECT_THAT(message_of<CheckpointError>([&] { save_checkpoint(folder / "c", 110, net.what(), {.keep = keep}); }),
                testing::AllOf(HasSubstr("has a checkpoint of step 200, so step 110 would not be its newest one"),
                               HasSubstr("fix: save to another folder, or remove the checkpoints after step 110")));
  EXPECT_THAT(steps(), testing::ElementsAre(200, 150, 100));
  // One that is not complete does not count.
  std::filesystem::remove(folder / "c" / "step-200" / "checkpoint_metadata.json");
  save_checkpoint(folder / "c", 160, net.what(), {.keep = 2});
  EXPECT_THAT(steps(), testing::ElementsAre(200, 160, 150));
  EXPECT_EQ(load_checkpoint(folder / "c", net.what()), 160);
}

/// Does not rename a folder to be removed.
struct FsWithoutPrune : ForwardingFs {
  int done(FsOp op, const std::function<int()>& forward) override {
    return op.kind == FsKind::rename && op.to.filename().string().starts_with(".trash-") ? EIO : forward();
  }
};

TEST(ModuleCheckpoint, WhatCannotBePrunedIsAWarning) {
  const TempFolder folder(memory_folder());
  run_ranks(2, [&](Group& group) {
    SavedTraining net(group, SavedForm::data_parallel, "SGD");
    FsWithoutPrune fs;
    for (const int step : {1, 2, 3}) {
      const SavedCheckpoint saved = save_checkpoint(folder / "c", step, net.what(), {.keep = 2, .fs = &fs});
      EXPECT_EQ(checkpoint::why_not_valid(saved.path), "");
      EXPECT_THAT(saved.warning, step < 3
                                     ? testing::Matcher<std::string>(testing::IsEmpty())
                                     : testing::AllOf(HasSubstr("step-1"), HasSubstr("be renamed for its removal")))
          << "on rank " << group.rank();
    }
    EXPECT_EQ(load_checkpoint(folder / "c", net.what()), 3);
  });
}

/// Rank 1 fails before or while it writes, after rank 0 has made a folder.
TEST(ModuleCheckpoint, NothingIsLeftOfASaveThatFailed) {
  struct FullDisk : ForwardingFs {
    int done(FsOp op, const std::function<int()>& forward) override {
      return op.kind == FsKind::write ? ENOSPC : forward();
    }
  };
  const TempFolder folder(memory_folder());
  run_ranks(2, [&](Group& group) {
    SavedTraining net(group, SavedForm::data_parallel, "SGD"), other(group, SavedForm::data_parallel, "SGD");
    torch::optim::Optimizer* optimizer = (group.rank() == 0 ? net : other).own.get();
    EXPECT_THAT(
        message_of<ConfigError>([&] { save_checkpoint(folder / "c", 1, net.what(), {.optimizer = optimizer}); }),
        HasSubstr("rank 1: a checkpoint of an optimizer that updates a tensor"));
    group.barrier().wait();
    EXPECT_FALSE(checkpoint::has_unfinished(folder / "c"));
    FullDisk full;
    files::Fs* fs = group.rank() == 1 ? &full : nullptr;
    group.barrier().wait();
    EXPECT_THAT(message_of<CheckpointError>([&] { save_checkpoint(folder / "c", 1, net.what(), {.fs = fs}); }),
                HasSubstr("No space left on device"));
    group.barrier().wait();
    EXPECT_FALSE(checkpoint::has_unfinished(folder / "c"));
    EXPECT_TRUE(checkpoint::checkpoints_in(folder / "c").empty());
  });
}

/// The options of each tensor are those of its own group.
TEST(ModuleCheckpoint, GroupsWithOtherStates) {
  namespace optim = torch::optim;
  SelfGroup group;
  const auto groups_of = [](const SavedTraining& training, const optim::OptimizerOptions& first,
                            const optim::OptimizerOptions& second) {
    std::vector<optim::OptimizerParamGroup> out;
    const std::vector<at::Tensor> all = training.own->param_groups()[0].params();
    const auto middle = all.begin() + 2;
    out.emplace_back(std::vector<at::Tensor>(all.begin(), middle), first.clone());
    out.emplace_back(std::vector<at::Tensor>(middle, all.end()), second.clone());
    return out;
  };
  const auto replace = [&](SavedTraining& training, const std::string& name, bool swap) {
    if (name == "SGD") {
      const optim::SGDOptions plain(0.1), momentum = optim::SGDOptions(0.1).momentum(0.9);
      training.own =
          std::make_unique<optim::SGD>(groups_of(training, swap ? momentum : plain, swap ? plain : momentum), plain);
    } else {
      const optim::AdamOptions plain(0.05), most = optim::AdamOptions(0.05).amsgrad(true);
      training.own =
          std::make_unique<optim::Adam>(groups_of(training, swap ? most : plain, swap ? plain : most), plain);
    }
  };
  for (const std::string name : {"SGD", "Adam"})
    for (const bool swap : {false, true}) {
      SCOPED_TRACE(text(name, " ", swap));
      const TempFolder folder(memory_folder());
      SavedTraining first(group, SavedForm::data_parallel, name), second(group, SavedForm::data_parallel, name, 2),
          other(group, SavedForm::data_parallel, name, 3);
      replace(first, name, swap), replace(second, name, swap), replace(other, name, !swap);
      for (int step = 0; step < 3; ++step) first.step(step);
      second.step(7);
      save_checkpoint(folder / "c", 3, first.what(), {.optimizer = first.own.get()});
      load_checkpoint(folder / "c", second.what(), {.optimizer = second.own.get()});
      for (int step = 3; step < 6; ++step) first.step(step), second.step(step);
      expect_same_tensors(second.state(), first.state(), 0);
      EXPECT_THAT(message_of<CheckpointError>(
                      [&] { load_checkpoint(folder / "c", other.what(), {.optimizer = other.own.get()}); }),
                  HasSubstr(name == "SGD" ? "(momentum_buffer): the optimizer has no such state"
                                          : "(max_exp_avg_sq) is not in the checkpoint"));
    }
}

/// States of a parameter that the optimizer does not update any more have no place in it.
TEST(ModuleCheckpoint, ParametersThatAreFrozenNow) {
  const TempFolder folder(memory_folder());
  SelfGroup group;
  SavedTraining first(group, SavedForm::data_parallel, "AdamW"), second(group, SavedForm::data_parallel, "AdamW", 2);
  first.step(0);
  save_checkpoint(folder / "c", 1, first.what(), {.optimizer = first.own.get()});
  const std::vector<at::Tensor> all = second.own->param_groups()[0].params();
  torch::optim::AdamW rest(std::vector<at::Tensor>(all.begin() + 1, all.end()), torch::optim::AdamWOptions(0.05));
  load_checkpoint(folder / "c", second.what(), {.optimizer = &rest});
  EXPECT_EQ(rest.state().size(), all.size() - 1);
  EXPECT_EQ(rest.state().count(all[0].unsafeGetTensorImpl()), 0U);
  expect_same_tensors(second.state(), first.state(), 0);
}

/// What a program needs to go on besides tensors: the scheduler, the learning rates, generators, and fields of its own.
TEST(ModuleCheckpoint, SchedulerGeneratorsAndFields) {
  const TempFolder folder(memory_folder());
  SelfGroup group;
  const auto train = [&](SavedTraining& net, torch::optim::StepLR& scheduler, int from, int to) {
    for (int step = from; step < to; ++step) {
      net.step(step);
      scheduler.step();
    }
  };
  SavedTraining whole(group, SavedForm::full_shard, "AdamW");
  torch::optim::StepLR whole_schedule(*whole.own, 2, 0.5);
  train(whole, whole_schedule, 0, 3);
  at::manual_seed(7);
  at::rand({3});
  const std::map<std::string, std::string> fields{{"epoch", "3"}, {"best", "0.25 \"quoted\"\n\u00e9"}};
  save_checkpoint(folder / "c", 3, whole.what(),
                  {.optimizer = whole.own.get(), .scheduler = &whole_schedule, .random = true, .fields = fields});
  const at::Tensor numbers = at::rand({3});
  train(whole, whole_schedule, 3, 6);

  SavedTraining again(group, SavedForm::data_parallel, "AdamW", 9);
  torch::optim::StepLR schedule(*again.own, 2, 0.5);
  std::map<std::string, std::string> found{{"old", "1"}};
  at::manual_seed(99);
  EXPECT_EQ(load_checkpoint(folder / "c", again.what(),
                            {.optimizer = again.own.get(), .scheduler = &schedule, .random = true, .fields = &found}),
            3);
  EXPECT_EQ(found, fields);
  EXPECT_TRUE(at::rand({3}).equal(numbers));
  train(again, schedule, 3, 6);
  EXPECT_EQ(again.own->param_groups()[0].options().get_lr(), whole.own->param_groups()[0].options().get_lr());
  expect_same_tensors(again.state(), whole.state(), 1e-12);

  // On another number of ranks the generators stay as they are; without a scheduler in the checkpoint there is none.
  run_ranks(2, [&](Group& two) {
    SavedTraining wider(two, SavedForm::full_shard, "AdamW", 9);
    load_checkpoint(folder / "c", wider.what(), {.random = true});
  });
  EXPECT_FALSE(at::rand({3}).equal(numbers));
  save_checkpoint(folder / "d", 1, again.what(), {.optimizer = again.own.get()});
  EXPECT_THAT(message_of<CheckpointError>([&] {
                load_checkpoint(folder / "d", again.what(), {.optimizer = again.own.get(), .scheduler = &schedule});
              }),
              HasSubstr("was saved without a scheduler"));
  EXPECT_THAT(
      message_of<ConfigError>([&] { save_checkpoint(folder / "d", 2, again.what(), {.scheduler = &schedule}); }),
      HasSubstr("a scheduler without its optimizer"));
}

/// An optimizer whose states are its own matter.
TEST(ModuleCheckpoint, AnyOptimizerOfAWholeModule) {
  const TempFolder folder(memory_folder());
  run_ranks(2, [&](Group& group) {
    const auto train = [&](SavedTraining& net, int step) {
      net.own->step([&] {
        const at::Tensor x = (at::arange(40, at::kDouble) * 0.37 + step).sin().view({8, 5});
        net.own->zero_grad();
        const at::Tensor loss = (net.net->forward(x) - x.narrow(1, 0, 3).cos()).square().mean();
        loss.backward();
        return loss.detach();
      });
    };
    SavedTraining whole(group, SavedForm::data_parallel, "LBFGS"), again(group, SavedForm::data_parallel, "LBFGS", 9);
    train(whole, 0);
    save_checkpoint(folder / "c", 1, whole.what(), {.optimizer = whole.own.get()});
    load_checkpoint(folder / "c", again.what(), {.optimizer = again.own.get()});
    for (int step = 1; step < 3; ++step) {
      train(whole, step);
      train(again, step);
    }
    expect_same_tensors(again.state(), whole.state(), 1e-12);
    SavedTraining sgd(group, SavedForm::data_parallel, "SGD");
    EXPECT_THAT(
        message_of<CheckpointError>([&] { load_checkpoint(folder / "c", sgd.what(), {.optimizer = sgd.own.get()}); }),
        HasSubstr("its optimizer states are of other, the optimizer is SGD"));
  });
}

TEST(ModuleCheckpoint, AModuleOfBuffersOnly) {
  struct Statistics : torch::nn::Module {
    Statistics() : mean(register_buffer("mean", at::zeros({3}))) {}
    at::Tensor mean;
  };
  const TempFolder folder(memory_folder());
  run_ranks(2, [&](Group& group) {
    Statistics saved, loaded;
    saved.mean.fill_(group.rank() + 1);
    save_checkpoint(folder / "c", 1, {saved, group});
    load_checkpoint(folder / "c", {loaded, group});
    EXPECT_TRUE(loaded.mean.equal(at::full({3}, 1.0F)));
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
