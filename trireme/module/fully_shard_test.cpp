#include "trireme/module/fully_shard.hpp"

#include <sstream>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/module/flat_parameters.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

/// A residual block, as a user writes it.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width) : norm(torch::nn::LayerNormOptions({width})), up(width, 12), down(12, width) {
    register_module("norm", norm);
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(const at::Tensor& x, double scale = 1) { return x + scale * down(up(norm(x)).relu_()); }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(1.0)})
};
TORCH_MODULE(Block);

struct TimesImpl : torch::nn::Module {
  explicit TimesImpl(const at::Tensor& shared) : weight(register_parameter("weight", shared)) {}
  at::Tensor forward(const at::Tensor& x) { return x.matmul(weight); }
  at::Tensor weight;
};
TORCH_MODULE(Times);

/// Blocks as units or as plain modules, a Sequential, a block that is called twice, a weight that two units share, one
/// that is used by the root, one that depends on the data, and one that is frozen. Widths that no rank count divides.
template <template <class> class Hold>
struct NetImpl : torch::nn::Module {
  NetImpl() {
    body->push_back(torch::nn::Linear(5, 7));
    body->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));  // in place, after a unit
    body->push_back(Block(7));
    body->push_back(torch::nn::Linear(7, 5));
    register_module("body", body);
    register_module("twice", twice);
    register_module("sometimes", sometimes);
    register_module("first_user", first_user);
    register_module("second_user", second_user);
    scale = register_parameter("scale", at::ones({5}, at::kDouble));
    frozen = register_parameter("frozen", at::full({3}, 0.5, at::kDouble), /*requires_grad=*/false);
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = body->forward(x) * scale + frozen.sum();
    y = twice->forward(twice(y, 0.5), 0.25);
    if (x[0][0].template item<double>() > 0) y = sometimes->forward(y);
    return second_user(first_user(y));
  }
  torch::nn::Sequential body;
  Hold<Block> twice{5}, sometimes{5};
  Hold<Times> first_user{at::eye(5)}, second_user{first_user->weight};
  at::Tensor scale, frozen;
};

template <class M>
struct Plain : M {
  using M::M;
};
using PlainNet = NetImpl<Plain>;
using UnitNet = NetImpl<Unit>;

template <class Net>
std::shared_ptr<Net> net_of(std::uint64_t seed) {
  at::manual_seed(seed);
  auto net = std::make_shared<Net>();
  const at::NoGradGuard no_grad;
  for (const auto& parameter : net->named_parameters()) {  // independent of the order of construction
    at::Tensor value = parameter.value();
    value.copy_((at::arange(value.numel(), at::kDouble) * 0.7 + static_cast<double>(parameter.key().size() + seed))
                    .sin()
                    .view(value.sizes()) *
                0.4);
  }
  return net;
}

constexpr std::int64_t kRows = 8;
/// The first column has one sign on the whole batch: some steps use `sometimes`, and some do not.
at::Tensor rows_of(int step) {
  at::Tensor x = ((at::arange(kRows * 5, at::kDouble) + 7.0 * step) * 0.31).sin().view({kRows, 5});
  x.select(1, 0).abs_().add_(0.1);
  return step % 2 == 0 ? x : -x;
}
at::Tensor loss_of(const at::Tensor& y, const at::Tensor& x) { return (y - x.cumsum(1)).square().mean(); }

struct Result {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> parameters;
};
constexpr int kSteps = 10;

enum class Kind { adam, sgd };
std::unique_ptr<torch::optim::Optimizer> optimizer_for(std::vector<at::Tensor> parameters, Kind kind) {
  if (kind == Kind::sgd) return std::make_unique<torch::optim::SGD>(std::move(parameters), 0.05);
  return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(0.01));
}

const Result& train_plain_net(Kind kind = Kind::adam) {
  static std::map<Kind, Result> results;
  if (!results.contains(kind))
    results[kind] = [kind] {
      const auto net = net_of<PlainNet>(1);
      std::vector<at::Tensor> parameters;  // net->parameters() has the shared weight twice
      for (const NamedTensor& parameter : distinct_parameters(*net)) parameters.push_back(parameter.value);
      const auto optimizer = optimizer_for(parameters, kind);
      Result out;
      for (int step = 0; step < kSteps; ++step) {
        optimizer->zero_grad();
        const at::Tensor loss = loss_of(net->forward(rows_of(step)), rows_of(step));
        loss.backward();
        optimizer->step();
        out.losses.push_back(loss.item<double>());
      }
      for (const NamedTensor& parameter : distinct_parameters(*net))
        out.parameters[parameter.name] = parameter.value.detach().clone();
      return out;
    }();
  return results[kind];
}

Result train_sharded(int ranks, int microbatches, const FullyShardOptions& options, Kind kind = Kind::adam) {
  Result out;
  run_ranks(ranks, [&](Group& group) {
    const auto net = net_of<UnitNet>(static_cast<std::uint64_t>(1 + group.rank()));  // only rank 0 has those weights
    auto model = fully_shard(net, group, options);
    const auto optimizer = optimizer_for(model.shards(), kind);
    for (int step = 0; step < kSteps; ++step) {
      optimizer->zero_grad();
      const std::int64_t each = kRows / ranks / microbatches;
      at::Tensor sum = at::zeros({1}, at::kDouble);
      for (int m = 0; m < microbatches; ++m) {
        const at::Tensor x = rows_of(step).narrow(0, (group.rank() * microbatches + m) * each, each);
        at::Tensor loss = loss_of(model(x), x) / microbatches;
        if (options.gradients == GradientScale::sum) loss = loss / ranks;
        std::optional<ShardedModule::NoSync> alone;
        if (m + 1 < microbatches) alone.emplace(model);
        loss.backward();
        sum += loss.detach();
      }
      optimizer->step();
      const at::Tensor total = group.all_reduce(sum, reduction_of(options.gradients)).wait();
      if (group.rank() == 0) out.losses.push_back(total.item<double>());
    }
    const std::vector<NamedTensor> state = model.state();
    for (const NamedTensor& parameter : state) {
      const at::Tensor first = group.broadcast_(parameter.value.clone(), 0).wait();
      EXPECT_TRUE(first.equal(parameter.value)) << parameter.name << " differs between ranks";
      if (group.rank() == 0) out.parameters[parameter.name] = parameter.value;
    }
  });
  return out;
}

void expect_same(const Result& found, const Result& wanted, double loss_bound = 1e-12, double parameter_bound = 1e-9) {
  ASSERT_EQ(found.losses.size(), wanted.losses.size());
  for (std::size_t i = 0; i < wanted.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i] / wanted.losses[i], 1, loss_bound) << "step " << i;
  for (const auto& [name, value] : found.parameters)
    EXPECT_LE((wanted.parameters.at(name) - value).norm().item<double>(), parameter_bound * value.norm().item<double>())
        << name;
  EXPECT_EQ(found.parameters.size(), wanted.parameters.size());
}

TEST(FullyShard, EqualsOneProcessOnTheWholeBatch) {
  for (const Sharding sharding : {Sharding::no_shard, Sharding::shard_grad_op, Sharding::full_shard})
    for (const int ranks : {1, 2, 4})
      for (const int microbatches : {1, 2})
        for (const auto prefetch : {BackwardPrefetch::none, BackwardPrefetch::pre, BackwardPrefetch::post}) {
          SCOPED_TRACE(text("sharding ", static_cast<int>(sharding), " ranks ", ranks, " microbatches ", microbatches,
                            " prefetch ", static_cast<int>(prefetch)));
          expect_same(train_sharded(ranks, microbatches,
                                    {.sharding = sharding,
                                     .backward_prefetch = prefetch,
                                     .forward_prefetch = prefetch != BackwardPrefetch::none,
                                     .gradients = microbatches == 1 ? GradientScale::mean : GradientScale::sum}),
                      train_plain_net());
        }
}

/// In a unit with others, a parameter that is not used has a gradient of zero, which is not the same as none for Adam.
TEST(FullyShard, EveryPolicy) {
  for (const WrapPolicy& policy : {wrap_never(), wrap_by_size(100), wrap_by_name({"body.*", "twice"}),
                                   wrap_by_type<BlockImpl>(), wrap_by_type<torch::nn::LinearImpl>()})
    expect_same(train_sharded(2, 1, {.policy = policy}, Kind::sgd), train_plain_net(Kind::sgd));
}

std::vector<std::string> unit_names(const WrapPolicy& policy) {
  std::vector<std::string> names;
  run_ranks(1, [&](Group& group) {
    for (const auto& unit : fully_shard(net_of<UnitNet>(1), group, {.policy = policy}).units())
      if (unit.elements > 0) names.push_back(unit.name);
  });
  return names;
}

TEST(FullyShard, PoliciesChooseUnits) {
  using testing::ElementsAre;
  // The shared weight of first_user and second_user belongs to the root.
  EXPECT_THAT(unit_names(wrap_always()), ElementsAre("", "body.0", "body.2", "body.3", "twice", "sometimes"));
  EXPECT_THAT(unit_names(wrap_never()), ElementsAre(""));
  EXPECT_THAT(unit_names(wrap_by_size(100)), ElementsAre("", "body.2", "twice", "sometimes"));
  EXPECT_THAT(unit_names(wrap_by_name({"body.[02]", "some*"})), ElementsAre("", "body.0", "body.2", "sometimes"));
  EXPECT_THAT(unit_names(wrap_by_type<BlockImpl>()), ElementsAre("", "body.2", "twice", "sometimes"));
}

/// Weight decay for matrices only, as one process has it.
TEST(FullyShard, GroupsOfParameters) {
  const auto is_matrix = [](const std::string&, const at::Tensor& value) { return value.dim() >= 2; };
  const auto optimizer_of_two = [](std::vector<at::Tensor> matrices, std::vector<at::Tensor> others) {
    using torch::optim::AdamWOptions;
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::move(matrices), std::make_unique<AdamWOptions>(AdamWOptions(0.01).weight_decay(0.5)));
    groups.emplace_back(std::move(others), std::make_unique<AdamWOptions>(AdamWOptions(0.02).weight_decay(0)));
    return torch::optim::AdamW(groups);
  };
  const auto alone = net_of<PlainNet>(1);
  auto wanted = optimizer_of_two(parameters_if(*alone, is_matrix),
                                 parameters_if(*alone, [&](const auto&... x) { return !is_matrix(x...); }));
  for (int step = 0; step < 3; ++step) {
    wanted.zero_grad();
    loss_of(alone->forward(rows_of(0)), rows_of(0)).backward();
    wanted.step();
  }
  run_ranks(2, [&](Group& group) {
    const auto net = net_of<UnitNet>(1);
    auto model = fully_shard(net, group, {.parameter_group = [&](const auto& name, const auto& value) {
                               return is_matrix(name, value) ? 0 : 1;
                             }});
    auto optimizer = optimizer_of_two(model.shards(0), model.shards(1));
    EXPECT_EQ(model.shards(0).size() + model.shards(1).size(), model.shards().size());
    EXPECT_THAT(message_of<ConfigError>([&] { model.shards(2); }), HasSubstr("no trained parameter is in group 2"));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      loss_of(model(rows_of(0)), rows_of(0)).backward();
      optimizer.step();
    }
    for (const NamedTensor& parameter : model.state())
      EXPECT_TRUE(parameter.value.allclose(alone->named_parameters()[parameter.name], 1e-9, 1e-12)) << parameter.name;
  });
}

/// The losses of bf16 parameters with shards in f64 do not depend on the ranks, and follow those of f64.
TEST(FullyShard, MixedPrecision) {
  for (const Sharding sharding : {Sharding::no_shard, Sharding::shard_grad_op, Sharding::full_shard})
    for (const auto reduce : {at::kFloat, at::kBFloat16}) {
      const FullyShardOptions options{.sharding = sharding, .precision = {.param = at::kBFloat16, .reduce = reduce}};
      const Result one = train_sharded(1, 1, options);
      expect_same(one, train_plain_net(), 0.2, 0.1);
      for (const int ranks : {2, 4}) expect_same(train_sharded(ranks, 1, options), one, 3e-2, 2e-2);
      EXPECT_EQ(one.parameters.at("scale").scalar_type(), at::kDouble);
    }
}

TEST(FullyShard, PrecisionOfInputsAndBuffers) {
  run_ranks(2, [](Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
    auto model = fully_shard(net, group, {.precision = {.param = at::kBFloat16, .buffer = at::kBFloat16}});
    const at::Tensor y = model(at::ones({2, 4}));
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_EQ(net->named_buffers()["1.running_mean"].scalar_type(), at::kBFloat16);
    y.sum().backward();
    for (const at::Tensor& shard : model.shards()) {
      EXPECT_EQ(shard.scalar_type(), at::kFloat);
      EXPECT_EQ(shard.grad().scalar_type(), at::kFloat);
    }
  });
}

std::int64_t living_elements(const torch::nn::Module& net) {
  std::set<const void*> known;
  std::int64_t bytes = 0;
  for (const at::Tensor& parameter : net.parameters())
    if (has_values(parameter) && known.insert(parameter.storage().unsafeGetStorageImpl()).second)
      bytes += static_cast<std::int64_t>(parameter.storage().nbytes());
  return bytes / 8;
}

struct Probe : torch::nn::Module {
  explicit Probe(std::function<void()> f) : look(std::move(f)) {}
  at::Tensor forward(const at::Tensor& x) {
    look();
    return x;
  }
  std::function<void()> look;
};

TEST(FullyShard, WhatIsInMemory) {
  for (const Sharding sharding : {Sharding::shard_grad_op, Sharding::full_shard})
    run_ranks(2, [&](Group& group) {
      torch::nn::Sequential net;
      std::vector<std::int64_t> seen;
      for (int i = 0; i < 4; ++i) {
        net->push_back(torch::nn::Linear(torch::nn::LinearOptions(10, 10).bias(false)));
        net->push_back(Probe([&] { seen.push_back(living_elements(*net)); }));
      }
      net->to(at::kDouble);
      auto model = fully_shard(net, group, {.sharding = sharding, .forward_prefetch = false});
      EXPECT_EQ(living_elements(*net), 0);
      for (const at::Tensor& shard : model.shards()) EXPECT_EQ(shard.numel(), 50);
      const at::Tensor x = at::ones({2, 10}, at::kDouble);
      for (int step = 0; step < 2; ++step) {
        seen.clear();
        const at::Tensor y = model(x);
        if (sharding == Sharding::full_shard) {
          // After the call of each unit. Backward begins with the last unit: known from the second forward on.
          EXPECT_THAT(seen, testing::ElementsAre(0, 0, 0, step == 0 ? 0 : 100));
        } else {
          EXPECT_THAT(seen, testing::ElementsAre(100, 200, 300, 400));
        }
        y.sum().backward();
        EXPECT_EQ(living_elements(*net), 0);
        for (const at::Tensor& parameter : net->parameters()) EXPECT_FALSE(has_values(parameter.grad()));
      }
      const at::NoGradGuard no_grad;
      model(x);
      EXPECT_EQ(living_elements(*net), 0);
    });
}

/// Sizes of 15 and 5 elements in one unit: parameters begin where kernels may read 16 bytes at once, and what lies in
/// between stays zero.
TEST(FullyShard, ParametersAreAligned) {
  for (const Sharding sharding : {Sharding::no_shard, Sharding::full_shard})
    for (const auto param : {at::kFloat, at::kBFloat16})
      run_ranks(2, [&](Group& group) {
        torch::nn::Sequential net(torch::nn::Linear(3, 5), torch::nn::Linear(5, 1));
        auto model =
            fully_shard(net, group, {.sharding = sharding, .precision = {.param = param}, .policy = wrap_never()});
        EXPECT_EQ(model.units().at(0).elements, 15 + 5 + 5 + 1);
        ASSERT_EQ(model.shards().size(), 1U);
        const at::Tensor shard = model.shards()[0];
        torch::optim::AdamW optimizer({shard}, torch::optim::AdamWOptions(0.1));
        for (int step = 0; step < 3; ++step) {
          const at::Tensor y = model(at::ones({2, 3}));
          for (const at::Tensor& parameter : net->parameters())
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parameter.const_data_ptr()) % 16, 0U);
          optimizer.zero_grad();
          y.square().sum().backward();
          optimizer.step();
        }
        at::Tensor is_padding = at::ones({shard.numel()}, at::kBool);
        for (const KeptTensor& kept : model.kept())
          for (const ShardPart& part : kept.parts) is_padding.narrow(0, part.offset, part.range.size()).fill_(false);
        EXPECT_GT(is_padding.sum().item<std::int64_t>(), 0);
        EXPECT_EQ(shard.detach().masked_select(is_padding).abs().sum().item<double>(), 0);
        EXPECT_EQ(shard.grad().masked_select(is_padding).abs().sum().item<double>(), 0);
        std::int64_t elements = 0;
        for (const NamedTensor& tensor : model.state()) elements += tensor.value.numel();
        EXPECT_EQ(elements, 15 + 5 + 5 + 1);
      });
}

TEST(FullyShard, TorchSaveAndLoad) {
  std::string file;
  run_ranks(2, [&](Group& group) {
    const auto net = net_of<UnitNet>(1);
    auto model = fully_shard(net, group);
    model.with_whole_parameters([&] {
      if (group.rank() != 0) return;
      std::ostringstream out;
      torch::serialize::OutputArchive archive;
      net->save(archive);
      archive.save_to(out);
      file = out.str();
    });
    EXPECT_EQ(living_elements(*net), 0);
  });
  const auto alone = net_of<PlainNet>(5);
  std::istringstream in(file);
  torch::serialize::InputArchive archive;
  archive.load_from(in);
  alone->load(archive);
  const auto wanted = net_of<PlainNet>(1);
  for (const auto& parameter : wanted->named_parameters())
    EXPECT_TRUE(alone->named_parameters()[parameter.key()].equal(parameter.value())) << parameter.key();
  run_ranks(4, [&](Group& group) {  // and into a sharded module
    const auto net = net_of<UnitNet>(9);
    auto model = fully_shard(net, group, {.precision = {.param = at::kBFloat16}});
    model.with_whole_parameters([&] {
      std::istringstream again(file);
      torch::serialize::InputArchive reader;
      reader.load_from(again);
      net->load(reader);
    });
    for (const NamedTensor& parameter : model.state())
      EXPECT_TRUE(wanted->named_parameters()[parameter.name].equal(parameter.value)) << parameter.name;
  });
}

TEST(FullyShard, ClipsTheNormOfAllShards) {
  const auto alone = net_of<PlainNet>(1);
  loss_of(alone->forward(rows_of(0)), rows_of(0)).backward();
  double squares = 0;
  for (const at::Tensor& parameter : alone->parameters())
    if (parameter.grad().defined()) squares += parameter.grad().square().sum().item<double>();
  // parameters() has the shared weight twice.
  squares -= alone->first_user->weight.grad().square().sum().item<double>();
  for (const Sharding sharding : {Sharding::no_shard, Sharding::full_shard})
    run_ranks(2, [&](Group& group) {
      auto model = fully_shard(net_of<UnitNet>(1), group, {.sharding = sharding});
      const at::Tensor x = rows_of(0).narrow(0, group.rank() * kRows / 2, kRows / 2);
      loss_of(model(x), x).backward();
      EXPECT_NEAR(model.clip_grad_norm(0.1) / std::sqrt(squares), 1, 1e-12);
      EXPECT_NEAR(model.clip_grad_norm(0.1), 0.1, 1e-12);
    });
}

/// Rank 0 alone asks for the state: the others are named, within the timeout.
TEST(FullyShard, StateOfOneRankAloneIsDiagnosed) {
  EXPECT_THAT(message_of<Error>([] {
                run_ranks(2,
                          [](Group& group) {
                            auto model = fully_shard(net_of<UnitNet>(1), group);
                            if (group.rank() == 0) model.state();
                          },
                          {.timeout_s = 0.5, .hang_folder = testing::TempDir() + "hang"});
              }),
              HasSubstr("all_gather"));
}

TEST(FullyShard, AListOfUnits) {
  run_ranks(2, [](Group& group) {
    auto model = fully_shard({torch::nn::AnyModule(torch::nn::Linear(3, 4)), torch::nn::AnyModule(torch::nn::GELU()),
                              torch::nn::AnyModule(torch::nn::Linear(4, 2))},
                             group);
    EXPECT_EQ(model.shards().size(), 2U);
    model(at::ones({1, 3})).sum().backward();
    EXPECT_TRUE(model.shards()[0].grad().defined());
  });
}

TEST(FullyShard, TheModuleIsItsOwnAgainAfterwards) {
  run_ranks(2, [](Group& group) {
    const auto net = net_of<UnitNet>(1);
    std::vector<NamedTensor> state;
    {
      auto model = fully_shard(net, group);
      state = model.state();
    }
    EXPECT_THROW(net->forward(rows_of(0)), c10::Error) << "no values, no crash";
    const at::NoGradGuard no_grad;
    for (const NamedTensor& parameter : state) net->named_parameters()[parameter.name].set_data(parameter.value);
    net->second_user->weight.set_data(net->first_user->weight);
    EXPECT_TRUE(net->forward(rows_of(0)).allclose(net_of<PlainNet>(1)->forward(rows_of(0))));
  });
}

/// A forward that no backward follows leaves gathered parameters: the next one must not see them after an update.
TEST(FullyShard, AForwardWithoutABackward) {
  for (const Sharding sharding : {Sharding::no_shard, Sharding::shard_grad_op, Sharding::full_shard})
    run_ranks(2, [&](Group& group) {
      auto model = fully_shard(net_of<UnitNet>(1), group, {.sharding = sharding});
      torch::optim::SGD optimizer(model.shards(), 0.1);
      const at::Tensor x = rows_of(0);
      for (int step = 0; step < 2; ++step) {
        loss_of(model(x), x).backward();
        const at::Tensor before = model(x).detach();  // a metric, without NoGradGuard
        optimizer.step();
        const at::Tensor after = model(x).detach();
        EXPECT_FALSE(after.equal(before));
        const at::NoGradGuard no_grad;
        EXPECT_TRUE(model(x).equal(after));
      }
    });
}

/// Gradients from before the module was sharded, and of microbatches that were given up, are not part of the next sum.
TEST(FullyShard, GradientsOfTheTimeBefore) {
  run_ranks(2, [](Group& group) {
    const auto net = net_of<UnitNet>(1);
    loss_of(net->forward(rows_of(0)), rows_of(0)).backward();
    auto model = fully_shard(net, group);
    const auto gradients = [&] {
      loss_of(model(rows_of(2)), rows_of(2)).backward();
      std::vector<at::Tensor> out;
      for (const at::Tensor& shard : model.shards()) out.push_back(shard.grad().clone());
      model.zero_grad();
      return out;
    };
    const auto first = gradients();
    {
      const auto alone = model.no_sync();
      loss_of(model(rows_of(4)), rows_of(4)).backward();
    }
    model.zero_grad();
    const auto second = gradients();
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(second[i])) << i;
    auto other = fully_shard(net_of<UnitNet>(1), group);
    loss_of(other(rows_of(2)), rows_of(2)).backward();
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(other.shards()[i].grad())) << i;
  });
}

/// Two graphs at once, one graph twice, an input that needs a gradient, and an exception in between.
TEST(FullyShard, OtherOrdersOfBackward) {
  run_ranks(2, [](Group& group) {
    auto model = fully_shard(net_of<UnitNet>(1), group);
    const at::Tensor x = rows_of(0);
    const auto sums = [&] {
      std::vector<at::Tensor> out;
      for (const at::Tensor& shard : model.shards()) out.push_back(shard.grad().clone());
      model.zero_grad();
      return out;
    };
    loss_of(model(x), x).backward();
    loss_of(model(x), x).backward();
    const auto twice = sums();
    const at::Tensor a = loss_of(model(x), x), b = loss_of(model(x), x);
    a.backward();
    b.backward();
    const auto both = sums();
    const at::Tensor kept = loss_of(model(x), x);
    kept.backward({}, /*retain_graph=*/true);
    kept.backward();
    const auto again = sums();
    const at::Tensor leaf = x.clone().requires_grad_();
    loss_of(model(leaf), x).backward();
    EXPECT_TRUE(leaf.grad().defined());
    loss_of(model(x), x).backward();
    const auto with_leaf = sums();
    for (std::size_t i = 0; i < twice.size(); ++i)
      for (const auto& other : {both, again, with_leaf}) EXPECT_TRUE(twice[i].allclose(other[i], 1e-12, 1e-15)) << i;
  });
}

TEST(FullyShard, ABackwardThatThrows) {
  run_ranks(2, [](Group& group) {
    auto model = fully_shard(net_of<UnitNet>(1), group);
    const at::Tensor x = rows_of(0);
    loss_of(model(x), x).backward();
    std::vector<at::Tensor> wanted;
    for (const at::Tensor& shard : model.shards()) wanted.push_back(shard.grad().clone());
    model.zero_grad();
    const at::Tensor y = model(x);
    const at::Tensor z = y * 1;
    y.register_hook([](const at::Tensor&) -> void { throw std::runtime_error("in backward"); });
    EXPECT_THROW(loss_of(z, x).backward(), std::runtime_error);
    model.zero_grad();
    loss_of(model(x), x).backward();
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(wanted[i].equal(model.shards()[i].grad())) << i;
  });
}

/// A unit that only training calls is prefetched by the first forward of an evaluation.
TEST(FullyShard, AUnitThatIsPrefetchedAndNotCalled) {
  run_ranks(2, [](Group& group) {
    auto model = fully_shard(net_of<UnitNet>(1), group);
    loss_of(model(rows_of(0)), rows_of(0)).backward();  // calls `sometimes`
    const at::NoGradGuard no_grad;
    model(rows_of(1));  // does not
    EXPECT_EQ(living_elements(model.module()), 0);
  });
}

TEST(FullyShard, Refused) {
  run_ranks(2, [](Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(3, group.rank() + 1));
    EXPECT_THAT(
        message_of<ConfigError>([&] { static_cast<void>(fully_shard(net, group)); }),
        HasSubstr("rank 1 of world{0,1} has a different module than rank 0: 0.weight [2, 3] Float trained, rank 0 has "
                  "0.weight [1, 3] Float trained"));
    torch::nn::Sequential table(torch::nn::Embedding(3, 2),
                                torch::nn::BilinearImpl(torch::nn::BilinearOptions(2, 2, 1)));
    auto model = fully_shard(table, group);
    EXPECT_THAT(message_of<ConfigError>([&] { model(at::zeros({1}, at::kLong)); }),
                HasSubstr("must map one tensor to one tensor"));
    auto other = fully_shard(net_of<UnitNet>(1), group);
    const at::Tensor in = rows_of(0).requires_grad_(), out = other(in).sum();
    EXPECT_THAT(message_of<ConfigError>(
                    [&] { torch::autograd::grad({out}, {in}, {}, /*retain_graph=*/true, /*create_graph=*/true); }),
                HasSubstr("a backward with create_graph"));
  });
}

}  // namespace
}  // namespace trireme
