#include "trireme/module/fit.hpp"

#include <filesystem>
#include <sstream>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/ranks_of_job.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/module/amp.hpp"
#include "trireme/module/sync_batch_norm.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

torch::nn::Sequential classifier() {
  at::manual_seed(2);
  torch::nn::Sequential net(torch::nn::Linear(4, 16), torch::nn::GELU(), torch::nn::Linear(16, 16), torch::nn::Tanh(),
                            torch::nn::Linear(16, 3));
  net->to(at::kDouble);
  return net;
}

/// Three classes by angle; 50 samples, so that steps of 8 end with one of 2.
std::shared_ptr<const Dataset> points(std::int64_t count, double shift) {
  const at::Tensor x = ((at::arange(count * 4, at::kDouble) + shift) * 0.77).sin().view({count, 4});
  return tensor_dataset(x, (x.select(1, 0).gt(0).to(at::kLong) + x.select(1, 1).gt(0.2).to(at::kLong)));
}

const FitLoss kCrossEntropy = [](const at::Tensor& logits, const at::Tensor& y) {
  return at::cross_entropy_loss(logits, y);
};
const OptimizerMaker kAdam = [](std::vector<at::Tensor> parameters) -> std::unique_ptr<torch::optim::Optimizer> {
  return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(0.02));
};

Parallelism cpus(int count, ParallelismType type, Sharding sharding = Sharding::full_shard) {
  return {.p_type = type,
          .devices = std::vector<at::Device>(static_cast<std::size_t>(count), at::Device(at::kCPU)),
          .config_fsdp = {.sharding = sharding, .wrap_policy = wrap_always()}};
}

struct Way {
  std::string name;
  std::optional<Parallelism> parallel;
  std::int64_t batch;  // for an effective one of 8
};
std::vector<Way> all_ways() {
  std::vector<Way> out{{"none", std::nullopt, 8}};
  for (const int n : {1, 2, 4}) {
    for (const Sharding sharding : {Sharding::no_shard, Sharding::shard_grad_op, Sharding::full_shard})
      out.push_back(
          {text("fsdp ", static_cast<int>(sharding), " on ", n), cpus(n, ParallelismType::FSDP, sharding), 8 / n});
    out.push_back({text("pipeline on ", n), cpus(n, ParallelismType::PIPELINE), 8});
  }
  return out;
}

TEST(Fit, EveryTechniqueGivesTheSameModel) {
  const auto train = points(50, 0), validation = points(21, 500);
  torch::nn::Sequential reference = classifier();
  const FitResult wanted = fit(reference, train, validation, kCrossEntropy, kAdam, {.epochs = 3, .batch_size = 8});
  EXPECT_GT(wanted.validation_accuracy, 0.7);
  EXPECT_LT(wanted.train_losses.back(), wanted.train_losses.front());
  for (const Way& way : all_ways())
    for (const double max_norm : {0.0, 0.1}) {
      SCOPED_TRACE(way.name + text(" clipped at ", max_norm));
      torch::nn::Sequential net = classifier();
      FitOptions options{.parallel = way.parallel, .epochs = 3, .batch_size = way.batch, .max_norm = max_norm};
      const FitResult found = fit(net, train, validation, kCrossEntropy, kAdam, options);
      torch::nn::Sequential plain = classifier();
      const FitResult goal = max_norm == 0 ? wanted
                                           : fit(plain, train, validation, kCrossEntropy, kAdam,
                                                 {.epochs = 3, .batch_size = 8, .max_norm = max_norm});
      EXPECT_NEAR(found.validation_loss / goal.validation_loss, 1, 1e-9);
      EXPECT_EQ(found.validation_accuracy, goal.validation_accuracy);
      for (std::size_t e = 0; e < 3; ++e) EXPECT_NEAR(found.train_losses[e] / goal.train_losses[e], 1, 1e-9);
      for (const auto& parameter : (max_norm == 0 ? reference : plain)->named_parameters())
        EXPECT_TRUE(net->named_parameters()[parameter.key()].cpu().allclose(parameter.value().cpu(), 1e-8, 1e-10))
            << parameter.key();
      EXPECT_TRUE(net->forward(at::ones({1, 4}, net->parameters()[0].options())).requires_grad()) << "a usable module";
    }
}

TEST(Fit, UsesTheRanksItIsIn) {
  const auto train = points(50, 0), validation = points(21, 500);
  torch::nn::Sequential reference = classifier();
  const FitResult wanted = fit(reference, train, validation, kCrossEntropy, kAdam, {.epochs = 2, .batch_size = 8});
  std::vector<torch::nn::Sequential> nets{classifier(), classifier()};
  for (const ParallelismType type : {ParallelismType::FSDP, ParallelismType::PIPELINE}) {
    nets = {classifier(), classifier()};
    run_ranks(2, [&](World& world) {
      torch::nn::Sequential& net = nets[static_cast<std::size_t>(world.rank())];
      Mesh mesh(Grid::dense(type == ParallelismType::FSDP ? Degrees{.dp = 2} : Degrees{.pp = 2}), world);
      const FitResult found = fit(
          net, train, validation, kCrossEntropy, kAdam,
          {.parallel = cpus(2, type), .epochs = 2, .batch_size = type == ParallelismType::FSDP ? 4 : 8, .mesh = &mesh});
      EXPECT_NEAR(found.validation_loss / wanted.validation_loss, 1, 1e-9);
    });
    for (const auto& net : nets)
      for (const auto& parameter : reference->named_parameters())
        EXPECT_TRUE(net->named_parameters()[parameter.key()].cpu().allclose(parameter.value().cpu(), 1e-8, 1e-10))
            << parameter.key();
  }
}

TEST(Fit, CrossValidation) {
  const auto data = points(53, 3);
  std::optional<CrossValidation> wanted;
  for (const Way& way : {all_ways()[0], all_ways()[7], all_ways()[8]}) {
    torch::nn::Sequential net = classifier();
    const CrossValidation found = cross_validate(5, net, data, kCrossEntropy, kAdam,
                                                 {.parallel = way.parallel, .epochs = 2, .batch_size = way.batch});
    ASSERT_EQ(found.folds.size(), 5U);
    if (!wanted) wanted = found;
    for (std::size_t i = 0; i < 5; ++i)
      EXPECT_NEAR(found.folds[i].validation_loss / wanted->folds[i].validation_loss, 1, 1e-9) << way.name;
    EXPECT_NEAR(found.mean_loss() / wanted->mean_loss(), 1, 1e-9);
    EXPECT_NEAR(found.mean_accuracy(), wanted->mean_accuracy(), 1e-12);
    for (const auto& parameter : classifier()->named_parameters())
      EXPECT_TRUE(net->named_parameters()[parameter.key()].equal(parameter.value())) << "the model stays as it is";
  }
  EXPECT_NE(wanted->folds[0].validation_loss, wanted->folds[1].validation_loss);
}

/// Frozen parameters stay as they are on every device, and children keep their names.
TEST(Fit, FrozenAndNamed) {
  const auto data = points(16, 0);
  for (const Way& way : all_ways()) {
    torch::nn::Sequential net({{"in", torch::nn::AnyModule(torch::nn::Linear(4, 8))},
                               {"act", torch::nn::AnyModule(torch::nn::Tanh())},
                               {"mid", torch::nn::AnyModule(torch::nn::Linear(8, 8))},
                               {"out", torch::nn::AnyModule(torch::nn::Linear(8, 3))}});
    net->to(at::kDouble);
    net->named_parameters()["mid.weight"].set_requires_grad(false);
    const at::Tensor frozen = net->named_parameters()["mid.weight"].clone(),
                     trained = net->named_parameters()["in.weight"].detach().clone();
    fit(net, data, data, kCrossEntropy, kAdam, {.parallel = way.parallel, .batch_size = way.batch});
    EXPECT_TRUE(net->named_parameters()["mid.weight"].cpu().equal(frozen)) << way.name;
    EXPECT_FALSE(net->named_parameters()["mid.weight"].requires_grad()) << way.name;
    EXPECT_FALSE(net->named_parameters()["in.weight"].cpu().equal(trained)) << way.name;
  }
  torch::nn::Linear shared(4, 4);
  torch::nn::Sequential tied(shared, torch::nn::Tanh(), shared);
  tied->to(at::kDouble);
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { fit(tied, data, data, kCrossEntropy, kAdam, {.parallel = cpus(2, ParallelismType::FSDP)}); }),
              HasSubstr("it shares some, which clone() does not keep"));
}

/// As T5: inputs by name, and a loss of its own.
struct OwnLossImpl : torch::nn::Cloneable<OwnLossImpl> {
  OwnLossImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(4, 8));
    last = register_module("last", torch::nn::Linear(8, 3));
    to(at::kDouble);
  }
  ModelInputs forward(const ModelInputs& in) {
    const at::Tensor logits = last(first(in.at("values")).tanh() * in.at("mask"));
    return {{"logits", logits}, {"loss", at::cross_entropy_loss(logits, in.at("labels"))}};
  }
  torch::nn::Linear first = nullptr, last = nullptr;
};
TORCH_MODULE(OwnLoss);

TEST(Fit, ModelsWithTheirOwnLoss) {
  const Samples samples = points(30, 0)->get([] {
    std::vector<std::int64_t> all(30);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }());
  const auto data =
      tensor_dataset(Samples{{samples.inputs[0], at::ones({30, 8}, at::kDouble)}, samples.targets, {"values", "mask"}});
  std::vector<double> losses;
  for (const int n : {1, 2}) {
    at::manual_seed(5);
    OwnLoss net;
    const FitResult result = fit(net, data, data, nullptr, kAdam,
                                 {.parallel = cpus(n, ParallelismType::FSDP), .epochs = 5, .batch_size = 8 / n});
    losses.push_back(result.validation_loss);
    EXPECT_GT(result.validation_accuracy, 0.6);
  }
  EXPECT_NEAR(losses[0] / losses[1], 1, 1e-9);
}

TEST(Fit, DatasetsOfTorch) {
  struct Numbers : torch::data::datasets::Dataset<Numbers> {
    torch::data::Example<> get(std::size_t i) override {
      return {at::full({4}, static_cast<double>(i), at::kDouble),
              at::scalar_tensor(static_cast<std::int64_t>(i % 3), at::kLong)};
    }
    std::optional<std::size_t> size() const override { return 7; }
  };
  const auto data = torch_dataset(Numbers());
  EXPECT_EQ(data->size(), 7);
  const Samples some = subset(data, {6, 2})->get({1, 0});
  EXPECT_TRUE(some.inputs[0].select(1, 0).equal(at::tensor({2.0, 6.0}, at::kDouble)));
  EXPECT_TRUE(some.targets.equal(at::tensor({2, 0}, at::kLong))) << some.targets;
  // A rank without samples in the last batch.
  const Samples none = data->get({});
  EXPECT_EQ(none.inputs[0].sizes(), (at::IntArrayRef{0, 4}));
  EXPECT_EQ(none.targets.numel(), 0);
}

/// 50 samples in steps of 8: ranks without samples in the last one do not count for the statistics.
TEST(Fit, SyncBatchNormDoesNotDependOnTheRanks) {
  std::vector<double> losses;
  for (const int n : {1, 2, 4, 8}) {
    at::manual_seed(2);
    torch::nn::Sequential net(torch::nn::Linear(4, 16), SyncBatchNorm(16), torch::nn::GELU(), torch::nn::Linear(16, 3));
    net->to(at::kDouble);
    losses.push_back(fit(net, points(50, 0), points(21, 500), kCrossEntropy, kAdam,
                         {.parallel = cpus(n, ParallelismType::FSDP), .epochs = 3, .batch_size = 8 / n})
                         .validation_loss);
    // Adam makes much of gradients that are zero but for rounding: those of a bias before a norm.
    EXPECT_NEAR(losses.back() / losses[0], 1, 1e-7) << n;
  }
}

TEST(Fit, SyncBatchNormOfMicrobatchesIsRefused) {
  torch::nn::Sequential net(torch::nn::Linear(4, 16), SyncBatchNorm(16), torch::nn::Linear(16, 3));
  net->to(at::kDouble);
  const auto trained = [&](int microbatches) {
    Parallelism parallel = cpus(2, ParallelismType::PIPELINE);
    parallel.config_pipeline.microbatches = microbatches;
    return message_of<ConfigError>(
        [&] { fit(net, points(16, 0), points(8, 500), kCrossEntropy, kAdam, {.parallel = parallel}); });
  };
  EXPECT_THAT(trained(0), HasSubstr("SyncBatchNorm in a pipeline of 2 microbatches"));
  EXPECT_EQ(trained(1), "no error");
}

/// The model of one device is the user's own, and was sharded.
TEST(Fit, AFailureLeavesTheWeights) {
  struct Broken final : Dataset {
    std::int64_t size() const override { return 16; }
    Samples get(const std::vector<std::int64_t>&) const override { throw DataError("a sample that cannot be read"); }
  };
  for (const ParallelismType type : {ParallelismType::FSDP, ParallelismType::PIPELINE}) {
    torch::nn::Sequential net = classifier();
    Parallelism parallel = cpus(1, type);
    parallel.config_pipeline.shard = FullyShardOptions{};
    const at::Tensor before = net->parameters()[0].detach().clone();
    EXPECT_THAT(message_of<DataError>([&] {
                  fit(net, std::make_shared<Broken>(), points(8, 500), kCrossEntropy, kAdam,
                      {.parallel = cpus(1, type)});
                }),
                HasSubstr("cannot be read"));
    EXPECT_TRUE(net->parameters()[0].equal(before));
    const OptimizerMaker none = [](const std::vector<at::Tensor>&) -> std::unique_ptr<torch::optim::Optimizer> {
      throw ConfigError("no optimizer");  // when the model is sharded already
    };
    EXPECT_EQ(message_of<ConfigError>(
                  [&] { fit(net, points(16, 0), points(8, 500), kCrossEntropy, none, {.parallel = parallel}); }),
              "no optimizer");
    EXPECT_TRUE(net->parameters()[0].equal(before));
  }
}

/// Rank 0 says it, and its stage has nothing to train.
TEST(Fit, TheLearningRateOfAStageWithoutParameters) {
  torch::nn::Sequential net(torch::nn::GELU(), torch::nn::Linear(4, 3));
  net->to(at::kDouble);
  const FitResult result =
      fit(net, points(16, 0), points(8, 500), kCrossEntropy, kAdam, {.parallel = cpus(2, ParallelismType::PIPELINE)});
  EXPECT_GT(result.epochs.at(0).learning_rate, 0);
}

/// A process that is one of several, without a mesh.
TEST(Fit, EveryRankByItself) {
  const auto data = points(16, 0);
  parallel_context_begins(2);
  torch::nn::Sequential net = classifier();
  EXPECT_THAT(message_of<ConfigError>([&] { fit(net, data, data, kCrossEntropy, kAdam); }),
              HasSubstr("fit: this process is one of 2 ranks, and has no mesh"));
  fit(net, data, data, kCrossEntropy, kAdam, {.alone = true});
  parallel_context_ends();
}

const SchedulerMaker kHalving = [](torch::optim::Optimizer& optimizer) -> std::unique_ptr<torch::optim::LRScheduler> {
  return std::make_unique<torch::optim::StepLR>(optimizer, 2, 0.5);
};

/// Six epochs in one call, or in two on other devices, with a checkpoint in between.
TEST(Fit, GoesOnAfterACheckpoint) {
  const auto train = points(50, 0), validation = points(21, 500);
  torch::nn::Sequential reference = classifier();
  const FitResult wanted = fit(reference, train, validation, kCrossEntropy, kAdam,
                               {.epochs = 6, .batch_size = 8, .scheduler = kHalving, .validate_every = 2});
  ASSERT_EQ(wanted.epochs.size(), 6U);
  EXPECT_EQ(wanted.epochs[1].learning_rate, 0.02);
  EXPECT_EQ(wanted.epochs[2].learning_rate, 0.01) << "by the third step of StepLR";
  EXPECT_FALSE(wanted.epochs[0].validation_loss.has_value());
  EXPECT_EQ(wanted.epochs[5].validation_loss, wanted.validation_loss);
  const std::vector<Way> ways = all_ways();
  for (const auto& [first_way, second] : {std::pair{ways[7], ways[0]}, std::pair{ways[7], ways[11]},
                                          std::pair{ways[8], ways[7]}, std::pair{ways[12], ways[8]}}) {
    SCOPED_TRACE(first_way.name + ", then " + second.name);
    const TempFolder folder(memory_folder());
    FitOptions options{.parallel = first_way.parallel, .epochs = 6, .batch_size = first_way.batch};
    options.scheduler = kHalving;
    options.checkpoints = folder / "checkpoints";
    options.on_epoch = [](const FitEpoch& epoch) { return epoch.epoch < 3; };
    torch::nn::Sequential first = classifier();
    EXPECT_EQ(fit(first, train, validation, kCrossEntropy, kAdam, options).train_losses.size(), 3U);
    std::ostringstream log;
    std::vector<double> losses;
    options.parallel = second.parallel;
    options.batch_size = second.batch;
    options.on_epoch = nullptr;
    options.on_step = [&](std::int64_t step, double loss) {
      losses.push_back(loss);
      EXPECT_EQ(step, std::ssize(losses));
    };
    options.log = &log;
    torch::nn::Sequential net = classifier();
    const FitResult found = fit(net, train, validation, kCrossEntropy, kAdam, options);
    EXPECT_THAT(log.str(), HasSubstr("goes on after epoch 3"));
    EXPECT_EQ(losses.size(), 3U * 7);
    ASSERT_EQ(found.train_losses.size(), 6U);
    for (std::size_t e = 0; e < 6; ++e) EXPECT_NEAR(found.train_losses[e] / wanted.train_losses[e], 1, 1e-9) << e;
    EXPECT_NEAR(found.validation_loss / wanted.validation_loss, 1, 1e-9);
    // Complete: nothing is trained again.
    torch::nn::Sequential again = classifier();
    EXPECT_EQ(fit(again, train, validation, kCrossEntropy, kAdam, options).epochs.size(), 0U);
    EXPECT_EQ(losses.size(), 3U * 7);
    for (const auto& parameter : net->named_parameters())
      EXPECT_TRUE(again->named_parameters()[parameter.key()].equal(parameter.value())) << parameter.key();
  }
}

TEST(Fit, GroupsOfParameters) {
  const auto train = points(50, 0), validation = points(21, 500);
  std::optional<FitResult> wanted;
  for (const Way& way : {all_ways()[0], all_ways()[7], all_ways()[8]}) {
    FitOptions options{.parallel = way.parallel, .epochs = 2, .batch_size = way.batch};
    options.parameter_group = [](const std::string&, const at::Tensor& value) { return value.dim() < 2 ? 1 : 0; };
    options.optimizer_of_groups = [](std::vector<std::vector<at::Tensor>> groups) {
      using torch::optim::SGDOptions;
      std::vector<torch::optim::OptimizerParamGroup> out;
      out.emplace_back(std::move(groups.at(0)), std::make_unique<SGDOptions>(SGDOptions(0.1).weight_decay(0.1)));
      out.emplace_back(std::move(groups.at(1)), std::make_unique<SGDOptions>(SGDOptions(0.2)));
      return std::make_unique<torch::optim::SGD>(out, SGDOptions(0.1));
    };
    torch::nn::Sequential net = classifier();
    const FitResult found = fit(net, train, validation, kCrossEntropy, kAdam, options);
    if (!wanted) wanted = found;
    EXPECT_NEAR(found.validation_loss / wanted->validation_loss, 1, 1e-9) << way.name;
  }
}

TEST(Fit, EachSampleOnceAnEpoch) {
  const EpochOrder order{.samples = 10, .per_step = 4, .seed = 3};
  EXPECT_EQ(order.steps(), 3);
  for (const std::int64_t epoch : {0, 1}) {
    std::vector<std::int64_t> seen;
    for (std::int64_t step = 0; step < 3; ++step)
      for (int rank = 0; rank < 3; ++rank)
        for (const std::int64_t i : part_of_step(order.step(epoch, step), rank, 3)) seen.push_back(i);
    EXPECT_THAT(seen, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
    EXPECT_FALSE(std::ranges::is_sorted(seen));
  }
  EXPECT_NE(order.step(0, 0), order.step(1, 0));
  EXPECT_THAT(part_of_step({5, 6}, 2, 3), testing::IsEmpty());
}

TEST(Fit, PrintsTheBatchSizeAndWritesATrace) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "fit_trace";
  std::filesystem::create_directories(folder);
  const auto data = points(16, 0);
  std::ostringstream log;
  Parallelism parallel = cpus(2, ParallelismType::FSDP);
  parallel.config_fsdp.wrap_policy.reset();
  torch::nn::Sequential net = classifier();
  fit(net, data, data, kCrossEntropy, kAdam, {.parallel = parallel, .batch_size = 4, .profile = folder, .log = &log});
  EXPECT_THAT(log.str(),
              HasSubstr("batch size 8: 4 on each of 2 devices; without a wrap policy the model is one unit"));
  EXPECT_THAT(log.str(), HasSubstr("epoch 1: loss "));
  for (const char* name : {"trace-rank0.json.gz", "trace-rank1.json.gz"})
    EXPECT_GT(std::filesystem::file_size(folder / name), 100U);
}

TEST(Fit, Refused) {
  const auto data = points(16, 0);
  const auto refusal = [&](const FitOptions& options) {
    torch::nn::Sequential net = classifier();
    return message_of<ConfigError>([&] { fit(net, data, data, kCrossEntropy, kAdam, options); });
  };
  Parallelism parallel = cpus(2, ParallelismType::FSDP);
  parallel.nb_device = 3;
  EXPECT_THAT(refusal({.parallel = parallel}), HasSubstr("nb_device 3 of 2 devices\n  fix: at most 2"));
  EXPECT_THAT(refusal({.parallel = Parallelism{.devices = std::vector<at::Device>{}}}),
              HasSubstr("the list of devices is empty"));
  EXPECT_THAT(refusal({.parallel = Parallelism{.devices = std::vector{at::Device("cuda:99")}}}),
              HasSubstr("device cuda:99 does not exist"));
  EXPECT_THAT(refusal({.parallel = cpus(6, ParallelismType::PIPELINE)}),
              HasSubstr("a pipeline of 5 layers on 6 devices"));
  EXPECT_THAT(refusal({.epochs = 0}), HasSubstr("0 epochs"));
  OwnLoss net;
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { fit(net, data, data, nullptr, kAdam, {.parallel = cpus(2, ParallelismType::PIPELINE)}); }),
              HasSubstr("a pipeline needs a torch::nn::Sequential"));
  EXPECT_THAT(message_of<ConfigError>([&] { fit(net, data, data, nullptr, kAdam); }), HasSubstr("Samples::names"));
  EXPECT_THAT(message_of<ConfigError>([&] { cross_validate(1, net, data, nullptr, kAdam); }), HasSubstr("1 folds"));
  EXPECT_THAT(message_of<ConfigError>([&] { tensor_dataset(at::ones({3}), at::ones({2})); }),
              HasSubstr("the numbers of samples, must be equal"));
}

/// Per-rank dot products would make every rank take other steps; without shards it is the closure that fit() lacks.
TEST(Fit, RefusesLbfgs) {
  const auto data = points(16, 0);
  const auto refusal = [&](std::optional<Parallelism> parallel) {
    torch::nn::Sequential net = classifier();
    const OptimizerMaker lbfgs = [](std::vector<at::Tensor> parameters) -> std::unique_ptr<torch::optim::Optimizer> {
      return std::make_unique<torch::optim::LBFGS>(std::move(parameters), torch::optim::LBFGSOptions(0.1));
    };
    return message_of<ConfigError>([&] { fit(net, data, data, kCrossEntropy, lbfgs, {.parallel = parallel}); });
  };
  EXPECT_THAT(refusal(cpus(2, ParallelismType::FSDP)),
              HasSubstr("torch::optim::LBFGS with FSDP (full_shard) on 2 devices: its dot products would be of the "
                        "gradients that a rank has"));
  EXPECT_THAT(refusal(cpus(2, ParallelismType::FSDP, Sharding::shard_grad_op)),
              HasSubstr("  fix: torch::optim::AdamW"));
  EXPECT_THAT(refusal(cpus(2, ParallelismType::PIPELINE)), HasSubstr("LBFGS with pipeline on 2 devices: its dot"));
  EXPECT_THAT(refusal(cpus(2, ParallelismType::FSDP, Sharding::no_shard)), HasSubstr("by a closure: fit() has none"));
  EXPECT_THAT(refusal(std::nullopt), HasSubstr("by a closure: fit() has none"));
}

TEST(Fit, AutocastAndScaler) {
  const auto x = points(32, 0);
  std::vector<double> losses;
  for (const bool low : {false, true}) {
    torch::nn::Sequential net = classifier();
    net->to(at::kFloat);
    const Samples all = x->get({0, 1, 2, 3, 4, 5, 6, 7});
    const auto data = tensor_dataset(all.inputs[0].to(at::kFloat), all.targets);
    FitOptions options{.parallel = cpus(2, ParallelismType::FSDP), .epochs = 20, .batch_size = 4, .grad_scaler = low};
    if (low) options.autocast = at::kBFloat16;
    losses.push_back(fit(net, data, data, kCrossEntropy, kAdam, options).train_losses.back());
  }
  EXPECT_NEAR(losses[1] / losses[0], 1, 0.2);
  EXPECT_NE(losses[1], losses[0]);
}

TEST(GradScaler, SkipsUpdatesThatAreNotFiniteOnAnyRank) {
  run_ranks(2, [](Group& group) {
    const at::Tensor weight = at::ones({2}).requires_grad_();
    torch::optim::SGD optimizer({weight}, 1.0);
    GradScaler scaler({.initial_scale = 8, .growth_interval = 2});
    scaler.scale(weight.sum() * (group.rank() == 1 ? std::numeric_limits<float>::infinity() : 1.0)).backward();
    EXPECT_FALSE(scaler.step(optimizer, group));
    EXPECT_EQ(weight[0].item<float>(), 1);
    EXPECT_EQ(scaler.scale_value(), 4);
    for (int i = 0; i < 2; ++i) {
      optimizer.zero_grad();
      scaler.scale(weight.sum()).backward();
      EXPECT_TRUE(scaler.step(optimizer, group));
    }
    EXPECT_EQ(weight[0].item<float>(), -1);
    EXPECT_EQ(scaler.scale_value(), 8);
  });
}

TEST(AutocastScope, ComputesInTheDtypeAndEnds) {
  const at::Tensor a = at::ones({2, 2});
  {
    const AutocastScope scope(at::kCPU, at::kBFloat16);
    EXPECT_EQ(at::mm(a, a).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(at::mm(a, a).scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace trireme
